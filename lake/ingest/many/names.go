package many

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// list is one dataset to ingest: what a group, or a large ingest, works on.
type list struct {
	Dataset string `json:"dataset"`
	// DatasetID is 0 until the dataset is registered.
	DatasetID uint32 `json:"dataset_id,omitempty"`
	// From is the file or folder after which the dataset is named, as a URL.
	From string `json:"from"`
	// Refused says why nothing can be read, "" if it can. Such a list has no objects and is not
	// registered.
	Refused     string `json:"refused,omitempty"`
	Fingerprint string `json:"fingerprint"`
	// Current is the digest of the batch's current record, "" if there is none.
	Current string          `json:"current,omitempty"`
	Objects []ingest.Object `json:"objects"`
}

// weight is what a list counts towards a group: its stored bytes, or what opening its objects and
// writing its own objects costs at least.
func (l *list) weight() int64 {
	return max(l.bytes(), int64(len(l.Objects))*objectWeight, listWeight)
}

func (l *list) bytes() (n int64) {
	for _, o := range l.Objects {
		n += o.Bytes
	}
	return n
}

// named groups the objects of the inputs into datasets, sorted by name. Files after which no
// dataset can be named, and those that would be one dataset together, are refused lists. loose are
// the objects that belong to none.
func named(listed []ingest.Listed, from string) (lists []list, loose []string) {
	byName := map[string]int{}
	for _, o := range listed {
		path, source := o.Below, o.Name
		if from == FromFolders {
			if len(path) < 2 {
				loose = append(loose, o.Name)
				continue
			}
			source = strings.TrimSuffix(o.Name, "/"+strings.Join(path[1:], "/"))
			path = path[:1]
		} else if len(path) == 0 {
			path = []string{o.Name[strings.LastIndexByte(o.Name, '/')+1:]}
		}
		name, err := DatasetName(path, from == FromFiles, strings.HasPrefix(o.Name, "file:"))
		refused := ""
		if err != nil {
			name, refused = strings.Join(path, "/"), err.Error() // the slash or letters keep it apart from names
		}
		at, ok := byName[name]
		if !ok {
			at = len(lists)
			byName[name] = at
			lists = append(lists, list{Dataset: name, From: source, Refused: refused})
		}
		l := &lists[at]
		if l.From != source && l.Refused == "" {
			l.Refused = fmt.Sprintf("%s and %s would both be dataset %s; rename one of them, or leave it out (--exclude)",
				l.From, source, name)
		}
		l.Objects = append(l.Objects, o.Object)
	}
	for i := range lists {
		if lists[i].Refused != "" {
			lists[i].Objects = nil
		}
		lists[i].Objects = ingest.SortObjects(lists[i].Objects)
	}
	slices.SortFunc(lists, func(a, b list) int { return cmp.Compare(a.Dataset, b.Dataset) })
	return lists, loose
}

// packings and formats are the extensions of file names that do not become part of a dataset's
// name: at most one of each. Objects in packedFormats are compressed inside.
var (
	packings = []string{".gz", ".bgz", ".zst", ".bz2", ".xz", ".lz4", ".sz", ".z", ".zip"}
	formats  = []string{
		".txt", ".lst", ".list", ".urls", ".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".cdx", ".cdxj",
		".parquet", ".tar", ".tgz", ".log", ".warc", ".arc", ".wacz", ".xml",
	}
	packedFormats = []string{".parquet", ".tgz", ".wacz"}
)

// compressed reports whether the list has an object whose name says that its content is compressed.
func (l *list) compressed() bool {
	return slices.ContainsFunc(l.Objects, func(o ingest.Object) bool {
		name := withoutExtension(o.Name, packings)
		return name != o.Name || withoutExtension(name, packedFormats) != name
	})
}

// DatasetName names a dataset after the path from an input to a file or folder. Names of folders
// above it are joined by a hyphen. What a name of a dataset cannot have becomes a hyphen, and a
// name that is too long ends in a hash of itself. Digits alone follow "dataset-".
func DatasetName(path []string, file, escaped bool) (string, error) {
	full := strings.Join(path, "/")
	if escaped {
		full = unescaped(full)
	}
	name := full
	if file {
		name = withoutExtension(withoutExtension(name, packings), formats)
	}
	var b strings.Builder
	gap := false
	for _, r := range name {
		ok := r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
		if !ok && (b.Len() == 0 || r != '.' && r != '_') {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('-')
			gap = false
		}
		b.WriteRune(r)
	}
	name = b.String()
	if _, ok := lake.DatasetID(name); ok {
		name = "dataset-" + name // digits alone would be an id
	}
	if len(name) > maxName {
		name = name[:maxName-17] + "-" + lake.Digest([]byte(full))[:16]
	}
	if err := lake.CheckDatasetName(name); err != nil {
		return "", fmt.Errorf("no dataset can be named after %q; give it a name with a letter from A to Z or a digit", full)
	}
	return name, nil
}

// maxName is the longest name of a dataset.
const maxName = 128

// withoutExtension removes one of the extensions from a name, unless nothing would be left.
func withoutExtension(name string, extensions []string) string {
	for _, e := range extensions {
		at := len(name) - len(e)
		if at > 0 && name[at-1] != '/' && strings.EqualFold(name[at:], e) {
			return name[:at]
		}
	}
	return name
}

// unescaped decodes the percent-escapes of a file URL.
func unescaped(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return s
}
