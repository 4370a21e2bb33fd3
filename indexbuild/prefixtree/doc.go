// Package prefixtree holds the path-tree index: for every folder of a set of keys, which is a
// prefix that ends in a slash, how many objects are below it and how many bytes they have. The root
// is the empty prefix. An index is a folder of files that are mapped, in one of two encodings,
// Seed and S3Inv; docs/formats/prefixtree.md describes both.
//
// A Builder takes objects in any order, through Collectors that may run concurrently, and writes an
// index in bounded memory. Its files depend on the objects alone, not on their order, on the number
// of Collectors or on the memory. Preorder is the step that turns sorted folders into nodes, for
// those who keep trees in other forms.
//
// Open opens an index in well under a millisecond. Lookups read a handful of places; children are
// listed in the order of their names, and descendants of one depth are found by two binary
// searches.
package prefixtree

import (
	"errors"
	"fmt"
	"math"

	"github.com/urlake/urlake/indexbuild/bbhash"
)

const (
	// MaxKey is the longest key in bytes. S3's limit is 1,024.
	MaxKey = 8192
	// MaxNodes is the largest number of nodes of an index.
	MaxNodes = bbhash.MaxKeys
)

// Format is an encoding of an index.
type Format string

const (
	// Seed is the encoding of the document "Index Format Specification" of s3-inv-db.
	Seed Format = "seed"
	// S3Inv is the encoding that the programs of s3-inv-db read and write.
	S3Inv Format = "s3inv"
)

// Formats are all encodings.
func Formats() []Format { return []Format{Seed, S3Inv} }

// Tier is a class of storage, or an access tier of S3 Intelligent-Tiering.
type Tier uint8

// The numbers are those of s3-inv-db, which has no Other.
const (
	Standard Tier = iota
	StandardIA
	OneZoneIA
	GlacierIR
	Glacier
	DeepArchive
	ReducedRedundancy
	IntelligentFrequent
	IntelligentInfrequent
	IntelligentArchiveInstant
	IntelligentArchive
	IntelligentDeepArchive
	// Other is any class that is not listed here.
	Other
	// NoTier means that the class is not known. An index of such objects alone has no tiers; among
	// others they are in Other.
	NoTier

	tiers = int(NoTier) // that are stored
)

// tierNames has for each tier its name, and the beginning of the names of its files.
var tierNames = [tiers][2]string{
	{"STANDARD", "standard"},
	{"STANDARD_IA", "standard_ia"},
	{"ONEZONE_IA", "onezone_ia"},
	{"GLACIER_IR", "glacier_ir"},
	{"GLACIER", "glacier_fr"},
	{"DEEP_ARCHIVE", "deep_archive"},
	{"REDUCED_REDUNDANCY", "reduced_redundancy"},
	{"INTELLIGENT_TIERING_FREQUENT", "it_frequent"},
	{"INTELLIGENT_TIERING_INFREQUENT", "it_infrequent"},
	{"INTELLIGENT_TIERING_ARCHIVE_INSTANT", "it_archive_instant"},
	{"INTELLIGENT_TIERING_ARCHIVE", "it_archive"},
	{"INTELLIGENT_TIERING_DEEP_ARCHIVE", "it_deep_archive"},
	{"OTHER", "other"},
}

// String returns the tier's name.
func (t Tier) String() string {
	if int(t) < tiers {
		return tierNames[t][0]
	}
	return ""
}

// TierOf returns the tier of an object by the columns StorageClass and IntelligentTieringAccessTier
// of S3 Inventory. An empty class is NoTier. The access tier of objects that a report does not give
// is that for frequent access, in which they begin.
func TierOf(class, access string) Tier {
	if class == "" {
		return NoTier
	}
	if class == "INTELLIGENT_TIERING" {
		switch access {
		case "", "FREQUENT", "FREQUENT_ACCESS":
			return IntelligentFrequent
		case "INFREQUENT", "INFREQUENT_ACCESS":
			return IntelligentInfrequent
		case "ARCHIVE_INSTANT_ACCESS":
			return IntelligentArchiveInstant
		case "ARCHIVE", "ARCHIVE_ACCESS":
			return IntelligentArchive
		case "DEEP_ARCHIVE", "DEEP_ARCHIVE_ACCESS":
			return IntelligentDeepArchive
		}
		return Other
	}
	for t := Standard; t <= ReducedRedundancy; t++ {
		if tierNames[t][0] == class {
			return t
		}
	}
	return Other
}

// Sum is a number of objects and the sum of their sizes in bytes.
type Sum struct{ Objects, Bytes uint64 }

var errOverflow = errors.New("the sum of the sizes exceeds 64 bits")

// add adds o.
func (s *Sum) add(o Sum) error {
	if s.Objects > math.MaxUint64-o.Objects || s.Bytes > math.MaxUint64-o.Bytes {
		return errOverflow
	}
	s.Objects += o.Objects
	s.Bytes += o.Bytes
	return nil
}

// keyError is about a key, which it quotes.
func keyError(key []byte, reason string) error {
	const shown = 80
	if len(key) > shown {
		return fmt.Errorf("key %q…: %s", key[:shown], reason)
	}
	return fmt.Errorf("key %q: %s", key, reason)
}
