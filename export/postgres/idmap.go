package postgres

import (
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

const idMapColumns = "requested_key, canonical_key, batch_id, dataset_id, requested_url, canonical_url"

// mapURLs encodes which canonical URL a field of the extras of rows has, as rows of id_map. A row
// without one, or with one that is no URL, has no entry; neither has a row whose URL is its own
// canonical URL, or whose canonical URL takedowns hide in the dataset whatever its time.
func (s *source) mapURLs(reads []read, field string, w io.Writer) error {
	if s.list == nil {
		var err error
		if s.list, err = lake.LoadSuffixList(s.ctx, s.store, s.version.PublicSuffix); err != nil {
			return err
		}
	}
	out := append([]byte{}, copyHeader...)
	last := "" // the URLs of the last entry, and its batch
	lastID := int32(0)
	for i := range reads {
		b := batches{of: s.plan.Stored[reads[i].Stored].Members}
		for rows, err := range s.read(&reads[i], s.rules, part.ColScheme, part.ColPort, part.ColHost, part.ColPathQuery, part.ColExtras) {
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
				u, err := urlnorm.Parse(s.list, text)
				if err != nil {
					continue
				}
				canonical := u.String()
				requested := (&urlnorm.URL{Scheme: c.Scheme[at], Host: c.Host[at], Port: c.Port[at], PathQuery: c.PathQuery[at]}).String()
				m := s.rules.For(u.Domain)
				if canonical == requested || m != nil && m.Hides(&takedown.Row{
					Dataset: reads[i].Dataset, Scheme: u.Scheme, Host: u.Host, Path: u.PathQuery, Port: u.Port,
				}) {
					continue
				}
				id := b.id(rows.BatchAt(at))
				if pair := requested + "\n" + canonical; pair != last || id != lastID {
					last, lastID = pair, id
					out = binary.BigEndian.AppendUint16(out, 6)
					out = append64(out, urlkey.Key(requested))
					out = append64(out, urlkey.Key(canonical))
					out = append32(out, uint32(id))
					out = append32(out, reads[i].Dataset)
					for _, text := range []string{requested, canonical} {
						out = append(binary.BigEndian.AppendUint32(out, uint32(len(text))), text...)
					}
				}
			}
			if _, err := w.Write(out); err != nil {
				return err
			}
			out = out[:0]
			s.opt.report(s.rows)
		}
	}
	_, err := w.Write(append(out, copyTrailer...))
	return err
}
