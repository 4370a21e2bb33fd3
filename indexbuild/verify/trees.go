package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

const (
	// treePages is how many pages of a part are read at once.
	treePages = 8
	// treeCache is for page indexes and lists of files, which are read in their order.
	treeCache = 4 << 20
)

// Trees checks the index of path trees of a segment, and does nothing if it has none. It reads the
// whole index. With deep it also counts the rows of all parts again. A difference is a
// *codec.CorruptError.
//
// Nodes are not collected for that: each row counts for each of its directories, so the sums over
// all rows and directories of a hash of the directory, and of its products with what is counted,
// have to be those over all entries of the index.
func Trees(ctx context.Context, store blob.Store, ref segment.Ref, deep bool) error {
	index, err := pathtree.Open(ctx, store, ref.ID, nil)
	if err != nil || index == nil {
		return err
	}
	if err := index.CheckFile(ctx, store); err != nil {
		return err
	}
	indexed, err := sumIndex(ctx, index)
	if err != nil {
		return err
	}
	bad := func(want, got any) error { return codec.Corrupt(index.Info().Object(), "nodes", -1, want, got) }
	if index.Info().Rows != ref.Rows {
		return bad(fmt.Sprintf("%d rows", ref.Rows), index.Info().Rows)
	}
	if indexed.children != indexed.nodes || indexed.childrenOf != indexed.below {
		return bad("as many children as there are nodes below", "others")
	}
	if !deep {
		return nil
	}
	counted, err := sumRows(ctx, store, ref)
	if err != nil {
		return err
	}
	if indexed.rowSums != counted {
		return bad("counts of the rows of the segment's parts", "others")
	}
	return nil
}

// rowSums are sums modulo 2^64 over rows and their directories.
type rowSums struct{ rows, direct, sized, size uint64 }

// add adds counts of a directory with that hash.
func (s *rowSums) add(hash uint64, c *pathtree.Counts) {
	s.rows += hash * uint64(c.Rows)
	s.direct += hash * uint64(c.Direct)
	s.sized += hash * uint64(c.Sized)
	s.size += hash * c.Size.Lo // the upper half of a sum is 0 modulo 2^64
}

// indexSums are the same over the entries of an index, and sums over its nodes.
type indexSums struct {
	rowSums
	// children and childrenOf sum up the numbers of children of nodes and of entries, nodes and
	// below the nodes and entries below hosts, with hashes of the parents.
	children, nodes, childrenOf, below uint64
}

// nodeHash hashes a node of a dataset, or of all for a dataset below zero.
func nodeHash(buf []byte, k segment.Key, path []byte, dataset int64) (uint64, []byte) {
	buf = codec.AppendU32(codec.AppendU64(buf[:0], k.ID), k.Check)
	buf = codec.AppendU64(buf, uint64(dataset))
	buf = append(buf, path...)
	return xxh3.Hash(buf), buf
}

func sumIndex(ctx context.Context, index *pathtree.Index) (s indexSums, err error) {
	var buf []byte
	var hash uint64
	for n, err := range index.All(ctx) {
		if err != nil {
			return s, err
		}
		parent := n.Path[:bytes.LastIndexByte(n.Path[:len(n.Path)-1], '/')+1]
		hash, buf = nodeHash(buf, n.Key, n.Path, -1)
		s.children += hash * uint64(n.Children)
		if len(parent) > 0 {
			hash, buf = nodeHash(buf, n.Key, parent, -1)
			s.nodes += hash
		}
		for i := range n.Entries {
			e := &n.Entries[i]
			hash, buf = nodeHash(buf, n.Key, n.Path, int64(e.Dataset))
			s.add(hash, &e.Counts)
			s.childrenOf += hash * uint64(e.Children)
			if len(parent) > 0 {
				hash, buf = nodeHash(buf, n.Key, parent, int64(e.Dataset))
				s.below += hash
			}
		}
	}
	return s, nil
}

// sumRows reads the rows of all parts of a segment.
func sumRows(ctx context.Context, store blob.Store, ref segment.Ref) (s rowSums, err error) {
	seg, err := segment.Open(ctx, store, ref, segment.Options{
		PostingsOnly: true, WholeFiles: true, Cache: segment.NewFrameCache(treeCache),
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, seg.Close()) }()
	for p, err := range seg.Pages(ctx) {
		if err != nil {
			return s, err
		}
		file, err := seg.File(ctx, p.File)
		if err != nil {
			return s, err
		}
		for first, last := p.FirstRow, p.FirstRow+p.Rows(); first < last; {
			_, end := p.Page(first)
			for n := 1; n < treePages && end < last; n++ {
				_, end = p.Page(end)
			}
			c, err := part.ReadColumns(ctx, store, file.Path, p.PageIndexBlock, first, end-first,
				part.ColDomain, part.ColHost, part.ColPathQuery, part.ColSize)
			if err != nil {
				return s, err
			}
			s.addRows(c, file.DatasetID)
			first = end
		}
	}
	return s, nil
}

// addRows adds rows of a dataset, those of one directory that follow each other at once.
func (s *rowSums) addRows(c *part.Columns, dataset uint32) {
	var buf []byte
	dirOf := func(i int) string {
		path, _, _ := strings.Cut(c.PathQuery[i], "?")
		return path[:strings.LastIndexByte(path, '/')+1]
	}
	for from := 0; from < c.Rows; {
		var run pathtree.Counts
		dir := dirOf(from)
		to := from
		for ; to < c.Rows && c.Host[to] == c.Host[from] && c.Domain[to] == c.Domain[from] && dirOf(to) == dir; to++ {
			run.Rows++
			if c.HasSize[to] {
				run.Sized++
				run.Size.Add(pathtree.Sum{Lo: uint64(c.Size[to])})
			}
		}
		k := segment.KeyOf(c.Domain[from])
		path := []byte(c.Host[from] + dir)
		for at := 0; at < len(path); {
			at += bytes.IndexByte(path[at:], '/') + 1
			if at == len(path) {
				run.Direct = run.Rows
			}
			var hash uint64
			hash, buf = nodeHash(buf, k, path[:at], int64(dataset))
			s.add(hash, &run)
		}
		from = to
	}
}
