package postgres

import (
	"encoding/binary"
	"encoding/json"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

const idMapColumns = "requested_key, canonical_key, batch_id, dataset_id, requested_url, canonical_url"

// idMapper makes rows of id_map.
type idMapper struct {
	list *urlnorm.SuffixList
	// last are the URLs of the last row that was written, and batch is its batch.
	last  string
	batch int32
}

// mapURLs encodes which canonical URL the extras of rows have. A row without one, or
// with one that is no URL, has no entry; neither has a row whose URL is its own canonical URL.
func (s *source) mapURLs(e *encoder, rows scan.Rows, field string) error {
	if s.idMap == nil {
		list, err := lake.LoadSuffixList(s.ctx, s.store, s.version.PublicSuffix)
		if err != nil {
			return err
		}
		s.idMap = &idMapper{list: list}
	}
	c := rows.Columns
	for n := range rows.Len() {
		i := rows.At(n)
		if c.Extras[i] == "" {
			continue
		}
		id := e.batchOf(rows.BatchAt(i))
		var extras map[string]json.RawMessage
		var text string
		if json.Unmarshal([]byte(c.Extras[i]), &extras) != nil || json.Unmarshal(extras[field], &text) != nil || text == "" {
			continue
		}
		u, err := urlnorm.Parse(s.idMap.list, text)
		if err != nil {
			continue
		}
		canonical := u.String()
		requested := (&urlnorm.URL{Scheme: c.Scheme[i], Host: c.Host[i], Port: c.Port[i], PathQuery: c.PathQuery[i]}).String()
		if canonical == requested || s.hidden(e, &u) {
			continue
		}
		pair := requested + "\n" + canonical
		if pair == s.idMap.last && id == s.idMap.batch {
			continue
		}
		s.idMap.last, s.idMap.batch = pair, id
		out := binary.BigEndian.AppendUint16(s.mapRows.buf, 6)
		out = append64(out, urlkey.Key(requested))
		out = append64(out, urlkey.Key(canonical))
		out = append32(out, uint32(id))
		out = append32(out, e.dataset)
		for _, text := range []string{requested, canonical} {
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(text))), text...)
		}
		s.mapRows.buf = out
	}
	return s.mapRows.flush()
}

// hidden reports whether takedowns hide a canonical URL in the dataset whatever its time.
func (s *source) hidden(e *encoder, u *urlnorm.URL) bool {
	m := s.rules.For(u.Domain)
	return m != nil && m.Hides(&takedown.Row{
		Dataset: e.dataset, Scheme: u.Scheme, Host: u.Host, Path: u.PathQuery, Port: u.Port,
	})
}
