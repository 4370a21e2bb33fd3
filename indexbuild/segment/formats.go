package segment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/lake"
)

// Format is the version of segment.json and of the framing of frame files.
const Format = 1

// reversedVersion is the version of domains.reversed.
const reversedVersion = 1

// fileFormat describes a kind of file of a segment.
type fileFormat struct {
	// kind is the file's name below the segment's prefix, with {shard} for a shard's four digits.
	kind string
	form fileForm
	// version is the version of the file's format. Formats with a magic have magic and version in
	// the file too: at its start or, in a frame file, at the start of each frame.
	magic   string
	version int
	// optional files speed up what readers can do without. Readers that do not know the kind ignore
	// the file. No kind is optional yet.
	optional bool
}

// fileForm is how a file is stored and what segment.json says of it.
type fileForm uint8

const (
	frameForm  fileForm = iota // zstd frames, read one by one
	mappedForm                 // mapped into memory, hashed in blocks
)

// fileFormats is the table of the files that this build writes and reads, by name. Every segment
// that it writes has all of them.
//
// A segment's id follows from the versions and the build (Builder). Whoever changes what a file
// means gives it a new version. A new kind of file that readers can do without is optional: older
// builds then read the segments of newer ones.
var fileFormats = []fileFormat{
	{kind: BatchesName, form: frameForm, version: 1},
	{kind: MembershipName, form: mappedForm, magic: membership.Magic, version: membership.Version},
	{kind: MPHFName, form: mappedForm, magic: "MPHF", version: 1},
	{kind: ReversedStartsName, form: frameForm, version: version},
	{kind: ReversedName, form: frameForm, version: reversedVersion},
	{kind: DomainStartsName, form: frameForm, version: version},
	{kind: DomainsName, form: frameForm, version: 1},
	{kind: FilesName, form: frameForm, version: filesVersion},
	{kind: PartsName, form: frameForm, version: partsVersion},
	{kind: PageKeysName, form: frameForm, version: pageKeysVersion},
	{kind: postingsDir + shardElement + payloadsFile, form: frameForm, version: 1},
	{kind: postingsDir + shardElement + postingsFile, form: frameForm, magic: postingsMagic, version: postingsVersion},
}

// Names of a segment's files below its prefix. Postings have two files for each shard.
const (
	InfoName           = "segment.json"
	BatchesName        = "batches.tsv.zst"
	DomainsName        = "domains.txt.zst"
	DomainStartsName   = "domains.starts.zst"
	ReversedName       = "domains.reversed.zst"
	ReversedStartsName = "domains.reversed.starts.zst"
	MPHFName           = "domains.mphf"
	MembershipName     = "domain_to_datasets.roar"
	FilesName          = "files.tsv.zst"
	PartsName          = "parts.idx.zst"
	PageKeysName       = "parts.keys.zst"

	postingsDir  = "postings/"
	postingsFile = "/postings.idx.zst"
	payloadsFile = "/postings.dat.zst"

	// shardElement replaces a shard's four digits in the kind of a file.
	shardElement = "{shard}"
	shardDigits  = 4
)

// PostingsName is the name of a shard's postings.idx.zst.
func PostingsName(shard int) string { return shardName(shard) + postingsFile }

// PayloadsName is the name of a shard's postings.dat.zst.
func PayloadsName(shard int) string { return shardName(shard) + payloadsFile }

func shardName(shard int) string { return fmt.Sprintf("%s%0*d", postingsDir, shardDigits, shard) }

// kindOf returns the kind of the file of that name. It knows no table, so that files of unknown
// kinds have one too.
func kindOf(name string) string {
	elements := strings.Split(name, "/")
	for i, e := range elements {
		if len(e) == shardDigits && strings.Trim(e, "0123456789") == "" {
			elements[i] = shardElement
		}
	}
	return strings.Join(elements, "/")
}

// formatOf returns the format of a kind, or nil if the table has none.
func formatOf(formats []fileFormat, kind string) *fileFormat {
	i := slices.IndexFunc(formats, func(f fileFormat) bool { return f.kind == kind })
	if i < 0 {
		return nil
	}
	return &formats[i]
}

// requiredNames returns the set of files that a segment must have.
func requiredNames(formats []fileFormat, shardBits int) map[string]bool {
	names := map[string]bool{}
	for _, f := range formats {
		shards := 1
		if strings.Contains(f.kind, shardElement) {
			shards = 1 << shardBits
		}
		for shard := range shards {
			if !f.optional {
				names[strings.Replace(f.kind, shardElement, fmt.Sprintf("%0*d", shardDigits, shard), 1)] = true
			}
		}
	}
	return names
}

// versionsOf returns the version of each kind.
func versionsOf(formats []fileFormat) map[string]int {
	versions := map[string]int{}
	for _, f := range formats {
		versions[f.kind] = f.version
	}
	return versions
}

// ID returns the id of the segment that a build makes of batches, which must be sorted. The id
// follows from the build, the formats and the inputs alone, so a step that is repeated writes the
// same bytes under the same keys.
func ID(batches []BatchRef, builder Builder) string { return builtID(fileFormats, batches, builder) }

func builtID(formats []fileFormat, batches []BatchRef, builder Builder) string {
	versions := versionsOf(formats)
	if name := builder.file(); name != "" {
		versions[name] = builderFormat
	}
	count, digest := digestOf(batches)
	return idOf(versions, count, digest)
}

// idOf returns the id of the segment whose files have these versions, by kind, over batches of that
// number and digest.
func idOf(versions map[string]int, count int64, digest string) string {
	s := fmt.Appendf(nil, "urlake segment %d\n", Format)
	for _, kind := range slices.Sorted(maps.Keys(versions)) {
		s = fmt.Appendf(s, "%s\t%d\n", kind, versions[kind])
	}
	return lake.Digest(fmt.Appendf(s, "%d batches\t%s\n", count, digest))
}
