//go:build !amd64

package urlnorm

const hasVectors = false

// locateAll locates the texts of all inputs of a batch.
func (b *batch) locateAll(o *Origins, urls [][]byte) {
	for i, raw := range urls {
		b.locate(o, i&(batchSize-1), raw)
	}
}

// lookUp returns, as bits, which inputs of a batch start with a known text, and sets the headers of
// these texts.
func (b *batch) lookUp(o *Origins, urls [][]byte) (known uint64) { return b.lookUpWords(o, urls) }

// hashShort is not called: there are no vectors.
func (o *Origins) hashShort(text []byte, scheme int) uint32 { return o.hashWords(text, scheme) }
