package prefixtree

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/codec"
)

// The versions of manifests. Only an index whose slots have offsets needs the second one: programs
// that do not know it look for positions.
const (
	manifestVersion = 1
	slotsVersion    = 2
)

// maxManifest is the largest manifest that is read, in bytes. The files of 8,192 depths take 1 MiB.
const maxManifest = 16 << 20

// manifest is manifest.json.
type manifest struct {
	Version   int             `json:"version"`
	CreatedAt *time.Time      `json:"created_at,omitempty"` // of S3Inv
	NodeCount uint64          `json:"node_count"`
	MaxDepth  uint32          `json:"max_depth"`
	Tiers     []tierEntry     `json:"tiers,omitempty"` // of Seed
	Files     map[string]file `json:"files"`
}

// file is what a manifest says of a file.
type file struct {
	Size     int64  `json:"size"`
	XXHash64 string `json:"xxhash64,omitempty"` // of Seed
	Checksum string `json:"checksum,omitempty"` // SHA-256, of S3Inv
}

// tierEntry is what manifests say of a tier: its number, its name, and how the names of its files
// begin.
type tierEntry struct {
	ID   Tier   `json:"id"`
	Name string `json:"name"`
	File string `json:"file"`
}

// tierDoc is tiers.json.
type tierDoc struct {
	Tiers []tierEntry `json:"tiers"`
}

func tierEntries(all []TierSum) (entries []tierEntry) {
	for _, t := range all {
		entries = append(entries, tierEntry{t.Tier, tierNames[t.Tier][0], tierNames[t.Tier][1]})
	}
	return entries
}

// tierList writes tiers.json, if the format has it.
func (w *writer) tierList(stats *Stats) error {
	if w.b.opt.Format != S3Inv || len(stats.Tiers) == 0 {
		return nil
	}
	doc, err := codec.Seal(tierDoc{tierEntries(stats.Tiers)})
	if err != nil {
		return err
	}
	w.files = append(w.files, tiersName)
	return writeFile(w.dir, tiersName, doc)
}

// encodeManifest returns the bytes of manifest.json. It is sealed: one more member, which readers
// of the format do not know, is the hash of the others.
func encodeManifest(l *layout, created time.Time, stats *Stats, names []string, all []sums) ([]byte, error) {
	m := manifest{Version: manifestVersion, NodeCount: stats.Nodes, MaxDepth: stats.MaxDepth, Files: map[string]file{}}
	for i, name := range names {
		f := file{Size: all[i].Bytes}
		if l.sha256 {
			f.Checksum = all[i].sha256
		} else {
			f.XXHash64 = fmt.Sprintf("%016x", all[i].XXH64)
		}
		m.Files[name] = f
	}
	if _, ok := m.Files[l.slots]; ok {
		m.Version = slotsVersion
	}
	if stats.Format == S3Inv {
		if created.IsZero() {
			created = time.Unix(0, 0)
		}
		created = created.UTC()
		m.CreatedAt = &created
	} else {
		m.Tiers = tierEntries(stats.Tiers)
	}
	return codec.Seal(m)
}

// decodeSealed decodes a document of an index, which is sealed unless another program wrote it.
func decodeSealed(data []byte, name string, v any) error {
	err := codec.Unseal(data, name, 0, v)
	if err == nil || !codec.IsUnsealed(err) || strings.Contains(string(data), `"xxh64"`) || strings.Contains(string(data), blocksName) {
		return err
	}
	if jerr := json.Unmarshal(data, v); jerr != nil {
		return codec.Corrupt(name, "document", -1, "JSON", jerr)
	}
	return nil
}
