package frontier

import (
	"strings"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// texts makes the strings of many URLs, which share memory: one object for hundreds of them. What
// is kept of one for long has to be a copy.
type texts struct {
	chunk  strings.Builder
	parsed urlnorm.URL // the one that is being added
	id     shard.ID    // its id
	url    []byte
}

// textsChunk is how many bytes share an object at most; the first chunks are smaller, for there may
// be no more than one URL.
const textsChunk = 64 << 10

// name returns the names of the parsed URL and of its queue, and sets the id.
func (t *texts) name(crawl, key string) (of, url string) {
	t.url = t.parsed.AppendTo(t.url[:0])
	queue := len(crawl) + 1 + len(key)
	if size := queue + 1 + len(t.url); t.chunk.Cap()-t.chunk.Len() < size {
		next := max(size, min(2*t.chunk.Cap(), textsChunk))
		t.chunk.Reset()
		t.chunk.Grow(next)
	}
	from := t.chunk.Len()
	t.chunk.WriteString(crawl)
	t.chunk.WriteByte(0)
	t.chunk.WriteString(key)
	t.chunk.WriteByte(0)
	t.chunk.Write(t.url)
	text := t.chunk.String()[from:]
	t.id = shard.IDOf(text, queue)
	return text[:queue], text[queue+1:]
}
