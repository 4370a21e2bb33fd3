package lake

import (
	"fmt"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// BatchFormat is the version of batch records.
const BatchFormat = 1

// Object is the key of an immutable object, with the size and the hash that its bytes must have.
type Object struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"` // 16 hex digits
}

// FrameObject is an Object that is a frame file (package seekable), with the size and the hash of
// its footer.
type FrameObject struct {
	Object
	FooterBytes int64  `json:"tail_bytes"`
	FooterXXH64 string `json:"tail_xxh64"` // 16 hex digits
}

// NewFrameObject describes a finished frame file stored under key.
func NewFrameObject(key string, ff seekable.File) FrameObject {
	return FrameObject{
		Object:      Object{Key: key, Bytes: ff.Bytes, XXH64: fmt.Sprintf("%016x", ff.XXH64)},
		FooterBytes: ff.FooterBytes,
		FooterXXH64: fmt.Sprintf("%016x", ff.FooterXXH64),
	}
}

// FrameFile returns the description by which seekable.OpenAt opens the object. Frames and RawBytes
// are 0. A hash that is not 16 hex digits is a *codec.CorruptError.
func (o FrameObject) FrameFile() (seekable.File, error) {
	ff := seekable.File{Bytes: o.Bytes, FooterBytes: o.FooterBytes}
	var err error
	if ff.XXH64, err = o.hash("xxh64", o.XXH64); err == nil {
		ff.FooterXXH64, err = o.hash("tail_xxh64", o.FooterXXH64)
	}
	return ff, err
}

func (o FrameObject) hash(field, text string) (uint64, error) {
	h, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, codec.Corrupt(o.Key, field, -1, "16 hex digits", fmt.Sprintf("%q", text))
	}
	return h, nil
}

// Part is one Parquet file.
type Part struct {
	Object
	DomainPrefix string `json:"domain_prefix"`
	Rows         int64  `json:"rows"`
	RowGroups    int    `json:"row_groups"`
}

// Input is one raw object that an ingest has read.
type Input struct {
	Name    string `json:"name"` // URL of the object, without credentials
	Bytes   int64  `json:"bytes"`
	Format  string `json:"format"` // as lake/raw names it: "csv+gzip"
	Records int64  `json:"records"`
	Rejects int64  `json:"rejects"`
	// BadTS counts records that were kept without their timestamp: the column was chosen
	// automatically and the value was not understood.
	BadTS int64 `json:"bad_ts,omitempty"`
}

// Unread is an object or a member of an archive that was skipped: it cannot be read to its end.
type Unread struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Batch is the record of one finished ingest. A publish and a rebuild start from it. It contains no
// clock and no run, so the same content has the same record and the same key.
type Batch struct {
	Format        int    `json:"format"`
	DatasetID     uint32 `json:"dataset_id"`
	Batch         string `json:"batch"`
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`
	// MovedFrom is the digest of the record of the same ingest under an earlier public suffix list,
	// from whose objects this one was made. It is empty if an ingest wrote the record.
	MovedFrom string `json:"moved_from,omitempty"`
	// Members are, in the record of a union, the batches whose rows its parts hold, by name. Batch
	// is then UnionName, and the record has no inputs and no rejects: those of the members do.
	Members []Member `json:"members,omitempty"`
	// Takedowns are, in the record of a union, the ids of the takedowns that were applied to its
	// rows when it, or a union that it was made of, was written, ascending. Rows that they hid are
	// not in its parts.
	Takedowns []string `json:"takedowns,omitempty"`

	Inputs []Input `json:"inputs"`
	// Records = Rows + Merged + the sum of Rejected.
	Records  int64            `json:"records"`
	Rows     int64            `json:"rows"`
	Merged   int64            `json:"merged"`   // records that are equal to a row
	Rejected map[string]int64 `json:"rejected"` // records by reason
	Domains  int64            `json:"domains"`

	Parts    []Part        `json:"parts"`
	Postings []FrameObject `json:"postings"`
	Rejects  *Object       `json:"rejects,omitempty"`
	// ListedRejects is how many of the rejected records Rejects lists, the first ones. It is 0 if
	// all are listed.
	ListedRejects int64 `json:"listed_rejects,omitempty"`
	// Unread are the first of UnreadCount objects and members that were not read to their end.
	Unread      []Unread `json:"unread,omitempty"`
	UnreadCount int64    `json:"unread_count,omitempty"`
	Unwrapped   int64    `json:"unwrapped,omitempty"` // records whose URL was within another
}

// Member is a batch of a union.
type Member struct {
	Batch  string `json:"batch"`
	Digest string `json:"digest"` // of its own record
	// Rows are those that the union has of the batch. Dropped is how many rows of the batch it
	// lacks, because takedowns hid them when they were written. The batch's own record has the sum.
	Rows    int64 `json:"rows"`
	Dropped int64 `json:"dropped,omitempty"`
}

// UnionDigest is a digest of the members of a union, and of the takedowns that were applied to
// their rows, from which UnionName makes its name. The takedowns are ascending.
func UnionDigest(members []Member, takedowns []string) string {
	var text []byte
	for _, m := range members {
		text = fmt.Appendf(text, "%s\t%s\n", m.Batch, m.Digest)
	}
	for _, id := range takedowns {
		text = fmt.Appendf(text, "\t%s\n", id)
	}
	return Digest(text)
}

// Encode returns the record's bytes and their digest, which BatchKey takes.
func (b *Batch) Encode() (data []byte, digest string, err error) {
	b.Format = BatchFormat
	data, err = codec.Seal(b)
	if err != nil {
		return nil, "", fmt.Errorf("batch record: %w", err)
	}
	return data, Digest(data), nil
}

// DecodeBatch decodes a record that was read from key. The error is a
// *codec.FormatError for a record of a newer urlake, and a *codec.CorruptError if bytes, format and
// key do not fit together.
func DecodeBatch(data []byte, key string) (*Batch, error) {
	var b Batch
	if err := codec.Unseal(data, key, BatchFormat, &b); err != nil {
		return nil, err
	}
	if b.Format != BatchFormat {
		return nil, codec.Corrupt(key, "format", -1, BatchFormat, b.Format)
	}
	if err := b.checkMembers(key); err != nil {
		return nil, err
	}
	if want := BatchKey(b.DatasetID, b.Batch, Digest(data)); want != key {
		return nil, codec.Corrupt(key, "key", -1, want, key)
	}
	return &b, nil
}

// checkMembers checks the members of a union against its name and its rows.
func (b *Batch) checkMembers(key string) error {
	rows := int64(0)
	for i, m := range b.Members {
		if CheckBatchName(m.Batch) != nil || i > 0 && b.Members[i-1].Batch >= m.Batch || m.Rows < 0 {
			return codec.Corrupt(key, "members", -1, "batches with rows, ascending by name", m.Batch)
		}
		if m.Dropped < 0 || m.Dropped > 0 && len(b.Takedowns) == 0 {
			return codec.Corrupt(key, "members", -1, "rows that takedowns of the record hid", m.Dropped)
		}
		rows += m.Rows
	}
	for i, id := range b.Takedowns {
		if id == "" || i > 0 && b.Takedowns[i-1] >= id || len(b.Members) == 0 {
			return codec.Corrupt(key, "takedowns", -1, "ids, ascending, in the record of a union alone", id)
		}
	}
	switch union := IsUnionName(b.Batch); {
	case union != (len(b.Members) > 0):
		return codec.Corrupt(key, "members", -1, "members in the record of a union alone", b.Batch)
	case union && rows != b.Rows:
		return codec.Corrupt(key, "rows", -1, rows, b.Rows)
	case union && UnionName(UnionDigest(b.Members, b.Takedowns)) != b.Batch:
		return codec.Corrupt(key, "batch", -1, UnionName(UnionDigest(b.Members, b.Takedowns)), b.Batch)
	}
	return nil
}
