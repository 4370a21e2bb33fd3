package tree

import (
	"math"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
)

// AppendSums appends the members of a node that are sums, without braces: rows, direct_rows, size
// and, if the size is not known, size_overflow.
func AppendSums(out []byte, n *Node) []byte {
	out = strconv.AppendInt(append(out, `"rows":`...), n.Rows, 10)
	out = strconv.AppendInt(append(out, `,"direct_rows":`...), n.Direct, 10)
	out = append(out, `,"size":`...)
	switch {
	case !n.HasSize:
		return append(out, "null"...)
	case n.Size == math.MaxInt64:
		return append(out, `null,"size_overflow":true`...)
	}
	return strconv.AppendInt(out, n.Size, 10)
}

// AppendNodes appends a JSON array of nodes, with the nodes below them as far as they are listed.
func AppendNodes(out []byte, nodes []Node) []byte {
	out = append(out, '[')
	for i := range nodes {
		n := &nodes[i]
		if i > 0 {
			out = append(out, ',')
		}
		out = codec.AppendJSONString(append(out, `{"name":`...), n.Name)
		out = codec.AppendJSONString(append(out, `,"path":`...), n.Path)
		out = AppendSums(append(out, ','), n)
		if n.Nodes == nil {
			out = strconv.AppendInt(append(out, `,"children":`...), int64(n.Children), 10)
		} else {
			out = strconv.AppendInt(append(out, `,"total_children":`...), int64(n.Children), 10)
			out = AppendNodes(append(out, `,"children":`...), n.Nodes)
		}
		out = append(out, '}')
	}
	return append(out, ']')
}
