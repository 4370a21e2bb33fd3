//go:build !amd64

package urlnorm

const hasVectors = false

func (b *batch) spotAll(o *Origins, urls [][]byte) {
	for i, raw := range urls {
		b.spot(o, i&(batchSize-1), raw)
	}
}

func (b *batch) lookUp(o *Origins, urls [][]byte) (known uint64) { return b.lookUpWords(o, urls) }

func (o *Origins) hashShort(text []byte, scheme int) uint32 { return o.hashWords(text, scheme) }

func scanName(s []byte, start int) (end int, dots, hyphens uint64) { return scanNameWords(s, start) }

func scanQuery(s []byte, from int) (ends, equals, odd uint64) { return scanQueryWords(s, from) }
