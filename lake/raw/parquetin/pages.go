package parquetin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

const (
	// maxDeltaValues is the most values of a delta-encoded page: a decoder allocates all their
	// lengths at once.
	maxDeltaValues = 1 << 24
	// maxDeltaBlock is the most values of a delta block. All writers use 128 or a few hundred.
	maxDeltaBlock = 1 << 16

	// batchSize is how many entries of a column are decoded at once.
	batchSize = 1024

	// A value of a DELTA_BYTE_ARRAY page repeats a prefix of the value before, so that a small page
	// can hold far more bytes than it has. A value is at most as long as all suffixes of its page
	// together. Such a page has at most maxPrefixedPage bytes, and at most prefixedBatch of its
	// values are decoded at once, fewer if they could have more than prefixedBytes.
	maxPrefixedPage = 8 << 20
	prefixedBatch   = 64
	prefixedBytes   = 16 << 20
)

// checkedPages checks the pages of a column before they are decoded, because a decoder allocates
// what a page says. It takes what the decoder will allocate from the reader's budget.
type checkedPages struct {
	file.PageReader
	desc   *schema.Column
	budget *budget
	// page and dictionary are the bytes taken for the current page and for the dictionary.
	page, dictionary int64
	batch            int64 // how many entries of the current page are to be decoded at once
	err              error
}

func (c *checkedPages) Next() bool {
	if c.err != nil || !c.PageReader.Next() {
		return false
	}
	c.err = c.check(c.Page())
	return c.err == nil
}

func (c *checkedPages) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.PageReader.Err()
}

// Close gives back what was taken from the budget.
func (c *checkedPages) Close() error {
	c.budget.give(c.page + c.dictionary)
	c.page, c.dictionary = 0, 0
	return c.PageReader.Close()
}

func (c *checkedPages) GetDictionaryPage() (*file.DictionaryPage, error) {
	p, err := c.PageReader.GetDictionaryPage()
	if err == nil && p != nil {
		err = c.check(p)
	}
	return p, err
}

var errPage = errors.New("a page says it has more values than its bytes can hold")

// check returns an error if a page's header or encoding claims more values than the page can hold.
func (c *checkedPages) check(page file.Page) error {
	data := page.Data()
	switch p := page.(type) {
	case *file.DictionaryPage:
		bits := int64(8)
		switch c.desc.PhysicalType() {
		case parquet.Types.Boolean:
			bits = 1
		case parquet.Types.Int32, parquet.Types.Float, parquet.Types.ByteArray:
			bits = 32
		case parquet.Types.Int64, parquet.Types.Double:
			bits = 64
		case parquet.Types.Int96:
			bits = 96
		case parquet.Types.FixedLenByteArray:
			bits = 8 * int64(max(c.desc.TypeLength(), 1))
		}
		if p.NumValues() < 0 || int64(p.NumValues())*bits > int64(len(data))*8 {
			return errPage
		}
		return c.takeDictionary(int64(p.NumValues()))
	case *file.DataPageV1:
		for _, l := range []struct {
			max      int16
			encoding parquet.Encoding
		}{
			{c.desc.MaxRepetitionLevel(), p.RepetitionLevelEncoding()},
			{c.desc.MaxDefinitionLevel(), p.DefinitionLevelEncoding()},
		} {
			if l.max == 0 || l.encoding != parquet.Encodings.RLE {
				continue
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errPage
			}
			data = data[4+binary.LittleEndian.Uint32(data):]
		}
	case *file.DataPageV2:
		levels := int64(p.RepetitionLevelByteLen()) + int64(p.DefinitionLevelByteLen())
		if levels < 0 || levels > int64(len(data)) {
			return errPage
		}
		data = data[levels:]
	default:
		return nil
	}
	return c.checkValues(parquet.Encoding(page.Encoding()), data)
}

// takeDictionary takes the memory of a dictionary's decoded values from the budget. The decoder
// grows a slice of them, so that twice as many can be in memory.
func (c *checkedPages) takeDictionary(values int64) error {
	size := int64(16)
	switch c.desc.PhysicalType() {
	case parquet.Types.ByteArray, parquet.Types.FixedLenByteArray:
		size = 24 // a slice
	}
	c.budget.give(c.dictionary)
	c.dictionary = 0
	if err := c.budget.take(2 * size * values); err != nil {
		return err
	}
	c.dictionary = 2 * size * values
	return nil
}

// checkValues checks the values of a data page, and takes from the budget what their decoder will
// allocate.
func (c *checkedPages) checkValues(encoding parquet.Encoding, data []byte) error {
	c.budget.give(c.page)
	c.page, c.batch = 0, batchSize
	var need int64
	switch encoding {
	case parquet.Encodings.DeltaBinaryPacked:
		if _, _, err := skipDelta(data); err != nil {
			return err
		}
	case parquet.Encodings.DeltaLengthByteArray:
		_, values, err := skipDelta(data)
		if err != nil {
			return err
		}
		need = 4 * values // their lengths
	case parquet.Encodings.DeltaByteArray:
		if len(data) > maxPrefixedPage {
			return fmt.Errorf("a page of DELTA_BYTE_ARRAY has %d bytes, more than %d", len(data), maxPrefixedPage)
		}
		suffixes, prefixValues, err := skipDelta(data)
		if err != nil {
			return err
		}
		text, values, err := skipDelta(suffixes)
		if err != nil {
			return err
		}
		longest := int64(max(len(text), 1))
		c.batch = min(max(prefixedBytes/longest, 1), prefixedBatch)
		need = 4*(prefixValues+values) + c.batch*longest
	case parquet.Encodings.ByteStreamSplit:
		if c.desc.PhysicalType() == parquet.Types.FixedLenByteArray {
			need = c.batch * int64(c.desc.TypeLength())
		}
	}
	if err := c.budget.take(need); err != nil {
		return err
	}
	c.page = need
	return nil
}

// skipDelta checks a DELTA_BINARY_PACKED sequence at the beginning of data. It returns the bytes
// after the sequence and the number of values that it claims
// (https://github.com/apache/parquet-format/blob/master/Encodings.md#delta-encoding-delta_binary_packed--5).
func skipDelta(data []byte) (rest []byte, values int64, err error) {
	bad := errors.New("a page's delta encoding is damaged")
	if len(data) == 0 {
		return nil, 0, nil // of a page without values
	}
	varint := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			data = nil
			return math.MaxUint64
		}
		data = data[n:]
		return v
	}
	block, minis, total := varint(), varint(), varint()
	if len(data) == 0 || block == 0 || block%128 != 0 || block > maxDeltaBlock ||
		minis == 0 || minis > block/32 || block%minis != 0 || total > maxDeltaValues {
		return nil, 0, bad
	}
	varint() // the first value
	for left := int64(total) - 1; left > 0; {
		varint() // the block's smallest delta
		if uint64(len(data)) < minis {
			return nil, 0, bad
		}
		widths := data[:minis]
		data = data[minis:]
		for _, w := range widths {
			if left <= 0 {
				break
			}
			n := int(block/minis) / 8 * int(w)
			if w > 64 || n > len(data) {
				return nil, 0, bad
			}
			data = data[n:]
			left -= int64(block / minis)
		}
	}
	return data, int64(total), nil
}
