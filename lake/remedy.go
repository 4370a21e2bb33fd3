package lake

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/urlake/urlake/lake/codec"
)

// starter returns the program whose verbs mend lakes, as the user of this program types it: urlake
// has all verbs, and may be the only program that is installed.
func starter() string {
	if filepath.Base(os.Args[0]) == "urlake" {
		return "urlake"
	}
	return "starter"
}

// Remedy returns the command that mends the object with that key, as the end of a sentence, and ""
// for what is not an object of a lake. lakeURL may be "".
func Remedy(lakeURL, key string) string {
	if lakeURL == "" {
		lakeURL = "LAKE"
	}
	rebuild := starter() + " rebuild --lake " + lakeURL
	again := func(dataset, batch string) string {
		return fmt.Sprintf("ingest batch %s of dataset %s again: %s ingest --lake %s --dataset NAME --batch %s …",
			batch, dataset, starter(), lakeURL, batch)
	}
	for _, form := range ingestedForms {
		if m := form.FindStringSubmatch(key); m != nil {
			if strings.HasPrefix(m[2], "~") { // a union, which is made again from its batches
				return "mend it with: " + rebuild
			}
			return again(m[1], m[2])
		}
	}
	switch {
	case key == "index/trees.json":
		return "write it again with: " + starter() + " tree build --lake " + lakeURL + " --always, or --never if publishes are to build no index of trees"
	case treeForm.MatchString(key):
		return "mend it with: " + starter() + " tree build --lake " + lakeURL
	case key == "index/trash/sweep.json":
		return "the next ingest or publish writes it again, on S3 after it has waited for 45 minutes"
	case strings.HasPrefix(key, "index/leases/"):
		return "delete it when the server that wrote it has ended"
	case strings.HasPrefix(key, "index/trash/"):
		return "mend it with: " + starter() + " gc --lake " + lakeURL
	case strings.HasPrefix(key, "access/tokens."):
		return "make new tokens after: " + starter() + " token revoke --lake " + lakeURL + " --all"
	case strings.HasPrefix(key, "access/"), key == "registry/readers.json":
		return "mend it with: " + starter() + " acl --lake " + lakeURL + " --repair"
	case key == "registry/domain64.json", strings.HasPrefix(key, "registry/domain64/"):
		return "the numbers of exports cannot be made again: restore registry/domain64.json and all below registry/domain64/ from one backup, " +
			"or delete all of them and export anew, to empty schemas and folders"
	case strings.HasPrefix(key, "registry/"), strings.HasPrefix(key, "index/"), strings.HasPrefix(key, "batches/"),
		strings.HasPrefix(key, "pending/"):
		return "mend it with: " + rebuild
	case strings.HasPrefix(key, "rules/"):
		return "mend it with: " + rebuild + ", or, for a list that this program lacks, with: " + starter() + " rules update --lake " +
			lakeURL + " --psl FILE"
	case strings.HasPrefix(key, "staging/"):
		return "it is lost with its run: start the ingest or publish again"
	}
	return ""
}

// treeForm are the keys of indexes of path trees.
var treeForm = regexp.MustCompile(`^index/segments/[0-9a-f]{32}/tree(-[0-9a-f]{32}\.zst|\.json)$`)

// ingestedForms are the keys of what only an ingest can write: parts, batch records and lists of
// rejects, with dataset and batch.
var ingestedForms = []*regexp.Regexp{
	regexp.MustCompile(`^urls/dataset_id=(\d+)/domain_prefix=[^/]*/part-(.+)-[0-9a-f]{32}-\d+\.parquet$`),
	regexp.MustCompile(`^batches/dataset_id=(\d+)/([^/]+)/[0-9a-f]{32}\.json$`),
	regexp.MustCompile(`^rejects/dataset_id=(\d+)/(.+)-[0-9a-f]{32}\.ndjson\.zst$`),
}

// Explain returns the text of an error. If it is about a damaged object of a lake, the text ends
// with the command that mends the object.
func Explain(lakeURL string, err error) string { return Explained(lakeURL, err).Error() }

// Explained returns err with the text of Explain, and nil for nil.
func Explained(lakeURL string, err error) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	text := Remedy(lakeURL, c.File)
	if text == "" || strings.HasSuffix(err.Error(), text) {
		return err
	}
	return &explainedError{err, text}
}

// explainedError is an error with a remedy.
type explainedError struct {
	err    error
	remedy string
}

func (e *explainedError) Error() string { return e.err.Error() + "; " + e.remedy }
func (e *explainedError) Unwrap() error { return e.err }
