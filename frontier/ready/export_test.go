package ready

// Entries counts those of a crawl's heap.
func (t *Table) Entries(crawl string) int { return len(t.crawls[crawl].heap) }

// Keys counts the keys.
func (t *Table) Keys() int { return len(t.keys) }
