package segment

import (
	"github.com/urlake/urlake/internal/mapped"
)

// copyName is the name of a mapped file's copy in the cache directory: {id}-{xxh64}-{name}. The
// hash keeps the copy of one file from being taken for another.
func copyName(id string, f *File) string { return id + "-" + f.XXH64 + "-" + f.Name }

// copyOf returns the id of the segment whose copy has that name, or false for other files.
func copyOf(name string) (id string, ok bool) {
	const sumDigits = 16
	if len(name) <= idDigits+sumDigits+2 || name[idDigits] != '-' || name[idDigits+1+sumDigits] != '-' {
		return "", false
	}
	id, file := name[:idDigits], name[idDigits+sumDigits+2:]
	return id, isHex(id, idDigits) && isMapped(file)
}

// PruneCache removes from a cache directory the copies of all segments but those in keep, and what
// processes that died while fetching left there. Other files stay. An open segment keeps its bytes
// where the system lets mapped files be removed; elsewhere they stay until the next call.
func PruneCache(dir string, keep []string) error {
	kept := map[string]bool{}
	for _, id := range keep {
		kept[id] = true
	}
	return mapped.Prune(dir, func(name string) bool {
		id, ok := copyOf(name)
		return ok && !kept[id]
	})
}

// isMapped tells whether readers map the file of that name.
func isMapped(name string) bool {
	f := formatOf(fileFormats, kindOf(name))
	return f != nil && f.form == mappedForm
}
