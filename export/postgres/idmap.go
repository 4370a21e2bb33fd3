package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

const idMapColumns = "requested_key, canonical_key, batch_id, dataset_id, requested_url, canonical_url"

// mapURLs encodes which canonical URL a field of the extras of rows has, as rows of id_map. A row
// without one, or with one that is no URL, has no entry; neither has a row whose URL is its own
// canonical URL, or whose canonical URL takedowns hide in the dataset whatever its time.
func (s *source) mapURLs(task int, w io.Writer) error {
	dataset := s.slice.Tasks[task].Dataset
	field := s.canonical[dataset]
	out := append([]byte{}, copyHeader...)
	for rows, err := range s.slice.Read(s.ctx, task, part.ColScheme, part.ColPort, part.ColHost, part.ColPathQuery, part.ColExtras) {
		if err != nil {
			return err
		}
		c := rows.Columns
		for n := range rows.Len() {
			at := rows.At(n)
			if c.Extras[at] == "" {
				continue
			}
			var extras map[string]json.RawMessage
			var text string
			if json.Unmarshal([]byte(c.Extras[at]), &extras) != nil || json.Unmarshal(extras[field], &text) != nil || text == "" {
				continue
			}
			u, err := urlnorm.Parse(s.suffixes, text)
			if err != nil {
				continue
			}
			canonical := u.String()
			requested := (&urlnorm.URL{Scheme: c.Scheme[at], Host: c.Host[at], Port: c.Port[at], PathQuery: c.PathQuery[at]}).String()
			m := s.slice.Rules().For(u.Domain)
			if canonical == requested || m != nil && m.Hides(&catalog.Row{
				Dataset: dataset, Scheme: u.Scheme, Host: u.Host, Path: u.PathQuery, Port: u.Port,
			}) {
				continue
			}
			id := s.batches[dataset][rows.BatchAt(at)]
			if entry := fmt.Sprint(id, requested, "\n", canonical); entry != s.mapped {
				s.mapped = entry
				out = binary.BigEndian.AppendUint16(out, 6)
				out = append64(out, urlkey.Key(requested))
				out = append64(out, urlkey.Key(canonical))
				out = append32(out, uint32(id))
				out = append32(out, dataset)
				for _, text := range []string{requested, canonical} {
					out = append(binary.BigEndian.AppendUint32(out, uint32(len(text))), text...)
				}
			}
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		out = out[:0]
	}
	_, err := w.Write(append(out, copyTrailer...))
	return err
}
