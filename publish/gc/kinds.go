package gc

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/lease"
)

// Kind is a kind of object that a collection deletes. Objects of other kinds stay.
type Kind int

// The kinds are in the order in which objects are deleted: what names other objects comes before
// them, so that a collection that ends anywhere leaves nothing that names what is gone. So a lost
// manifest or registry, which are made again from what is in the store, finds only what is whole.
const (
	Versions Kind = iota
	SegmentInfos
	SegmentFiles
	VersionPieces
	Takedowns
	TakedownPieces
	Deletions
	Records
	Postings
	Rejects
	Parts
	RegistryPieces
	// TakenPieces are pieces of what ingests of many datasets have read.
	TakenPieces
	// NumberPieces are pieces of the numbers of domain64.
	NumberPieces
	// Reports are the outcomes of ingests of many datasets. They stay for reportLife.
	Reports
	// Probes are what processes have left that were killed while they checked conditional puts.
	Probes
	kinds
)

var kindNames = [kinds]string{
	"versions", "segments", "segment files", "version pieces", "takedowns", "takedown pieces", "deletion tables", "batch records",
	"postings", "rejects", "parts", "registry pieces", "pieces of inputs", "pieces of domain64 numbers", "reports", "probes",
}

func (k Kind) String() string { return kindNames[k] }

const (
	versionRoot = "index/versions/"
	segmentRoot = "index/segments/"
	batchRoot   = "batches/dataset_id="
	partRoot    = "urls/dataset_id="
	rejectRoot  = "rejects/dataset_id="
)

// others are the keys of a lake that a collection does not delete as garbage, with the reason. With
// the kinds they are all keys that a lake can have.
var others = []struct {
	name string
	form *regexp.Regexp
	why  string
}{
	{"manifest", form(catalog.ManifestKey), "there is one, which is replaced"},
	{"registry", form(lake.RegistryKey), "there is one, which is replaced"},
	{"copy of the registry", form(catalog.RegistryCopyKey), "there is one, which is replaced"},
	{"what waits to be published", regexp.MustCompile("^" + catalog.PendingRoot + `([0-9]+|many)/[0-9]{19}-[^/]+\.json$`), "publishes delete it"},
	{"inputs of many datasets", form(many.TakenKey), "there is one, which is replaced"},
	{"numbers of domain64", form(numbers.Key), "there is one, which is replaced"},
	{
		"public suffix lists", regexp.MustCompile(`^rules/public-suffix-[0-9a-f]{32}\.txt$`),
		"records of batches name the list that they were made with, also when the lake follows another one; " +
			"only reading all records would show that none does",
	},
	{"readers of datasets", form(access.ListKey), "there is one, which is replaced"},
	{"setting of path trees", form(treebuild.SettingKey), "there is one, which is replaced"},
	{"copy of the readers of datasets", form(access.CopyKey), "there is one, which is replaced"},
	{"copy of the tokens", form(access.TokensCopyKey), "there is one, which is replaced"},
	{"mark of the readers of datasets", form(access.MarkKey), "there is one, which does not change"},
	{"tokens", form(access.TokensKey), "there is one, which is replaced; tokens that ended leave it after a while"},
	{"leases", regexp.MustCompile("^" + lease.Root + `[^/]+\.json$`), "a collection removes those of dead holders when it ends"},
	{"sweep", form(lease.SweepKey), "there is one, which is replaced"},
	{"lists of garbage", regexp.MustCompile("^" + lease.TrashRoot + `lists/[^/]+\.json$`), "a collection deletes them with what they list"},
	{"staging", regexp.MustCompile("^" + lake.StagingPrefix(".+")), "ingest.Sweep removes it, since only Temporal knows which runs are dead"},
	{"last run of an ingest", regexp.MustCompile(`^staging/last-[0-9a-f]{32}\.json$`), "ingest.Sweep removes it with the run"},
	{"time of the last removal of staging", regexp.MustCompile(`^staging/sweep\.json$`), "there is one, which is replaced"},
}

func form(key string) *regexp.Regexp { return regexp.MustCompile("^" + regexp.QuoteMeta(key) + "$") }

// KindOf returns the name of the kind of a key of a lake, and for a kind that a collection does not
// delete as garbage why that is so. Ok is false for a key that no lake has.
func KindOf(key string) (name, whyKept string, ok bool) {
	if o, ok := parse(key); ok {
		return o.kind.String(), "", true
	}
	for _, k := range others {
		if k.form.MatchString(key) {
			return k.name, k.why, true
		}
	}
	return "", "", false
}

// object is what the key of an object says.
type object struct {
	kind Kind
	// name is the id of the version or segment, or the run of the report.
	name string
	// batch is that of a record, part, or of postings or rejects.
	batch catalog.BatchName
}

var (
	recordForm   = regexp.MustCompile(`^[0-9a-f]{32}\.json$`)
	postingsForm = regexp.MustCompile(`^postings-[0-9a-f]{32}\.zst$`)
	rejectsForm  = regexp.MustCompile(`^(.+)-[0-9a-f]{32}\.ndjson\.zst$`)
	partForm     = regexp.MustCompile(`^domain_prefix=[^/]+/part-(.+)-[0-9a-f]{32}-[0-9]+\.parquet$`)
	pieceForm    = regexp.MustCompile(`^[0-9a-f]{2}/[0-9a-f]{32}$`)
	segmentForm  = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// parse returns what a key says. ok is false for an object that no collection deletes.
func parse(key string) (o object, ok bool) {
	switch {
	case strings.HasPrefix(key, versionRoot):
		id, found := strings.CutSuffix(key[len(versionRoot):], ".json")
		return object{kind: Versions, name: id}, found && catalog.ValidVersionID(id)
	case strings.HasPrefix(key, segmentRoot):
		id, file, found := strings.Cut(key[len(segmentRoot):], "/")
		o = object{kind: SegmentFiles, name: id}
		if file == "segment.json" {
			o.kind = SegmentInfos
		}
		return o, found && segmentForm.MatchString(id)
	case strings.HasPrefix(key, catalog.VersionPiecesRoot):
		return object{kind: VersionPieces}, pieceForm.MatchString(key[len(catalog.VersionPiecesRoot):])
	case strings.HasPrefix(key, catalog.RegistryPiecesRoot):
		return object{kind: RegistryPieces}, pieceForm.MatchString(key[len(catalog.RegistryPiecesRoot):])
	case strings.HasPrefix(key, many.TakenRoot):
		return object{kind: TakenPieces}, pieceForm.MatchString(key[len(many.TakenRoot):])
	case strings.HasPrefix(key, numbers.PiecesRoot):
		return object{kind: NumberPieces}, pieceForm.MatchString(key[len(numbers.PiecesRoot):])
	case strings.HasPrefix(key, many.ReportRoot):
		run, ok := many.ReportRun(key)
		return object{kind: Reports, name: run}, ok
	case strings.HasPrefix(key, catalog.TakedownDocumentRoot):
		return object{kind: Takedowns}, catalog.IsTakedownDocument(key)
	case strings.HasPrefix(key, catalog.TakedownPiecesRoot):
		return object{kind: TakedownPieces}, pieceForm.MatchString(key[len(catalog.TakedownPiecesRoot):])
	case strings.HasPrefix(key, lake.DeletionRoot):
		return object{kind: Deletions}, lake.IsDeletion(key)
	case strings.HasPrefix(key, catalog.ProbeRoot):
		_, ok := blob.ProbeBegan(key[len(catalog.ProbeRoot):])
		return object{kind: Probes}, ok
	}
	for _, root := range []string{batchRoot, partRoot, rejectRoot} {
		rest, found := strings.CutPrefix(key, root)
		if !found {
			continue
		}
		id, rest, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(id, 10, 32)
		o.batch.DatasetID = uint32(n)
		if err != nil {
			return o, false
		}
		switch root {
		case partRoot:
			m := partForm.FindStringSubmatch(rest)
			if o.kind = Parts; m != nil {
				o.batch.Batch = m[1]
			}
		case rejectRoot:
			m := rejectsForm.FindStringSubmatch(rest)
			if o.kind = Rejects; m != nil {
				o.batch.Batch = m[1]
			}
		default:
			batch, file, _ := strings.Cut(rest, "/")
			o.batch.Batch = batch
			switch {
			case recordForm.MatchString(file):
				o.kind = Records
			case postingsForm.MatchString(file):
				o.kind = Postings
			default:
				return o, false
			}
		}
		return o, lake.CheckStoredName(o.batch.Batch) == nil
	}
	return o, false
}
