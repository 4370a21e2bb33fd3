package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/urlake/urlake/lake/ingest/allow"
)

// Object is an object to read: its URL, its stored size, and its ETag.
type Object = object

// Listed is an object of an input, with the input by which it was found.
type Listed struct {
	Object
	// Input is the input as it was given; of a glob of files, the match.
	Input string
	// Below is the path from the input to the object. It is empty if the input is the object
	// itself.
	Below []string
}

// ListInputs lists the objects that the inputs of a Spec stand for, input by input; what a manifest
// lists are inputs themselves. An object that two inputs have is listed twice. notes tell which
// objects are not read. Files below an input that cannot be found, and folders that cannot be read,
// are listed as objects, which fail when they are read. limit is the most objects that are listed.
func ListInputs(ctx context.Context, spec *Spec, limit int) (all []Listed, notes []string, err error) {
	sel, err := newSelection(spec.Include, spec.Exclude)
	if err != nil {
		return nil, nil, err
	}
	in := inputs{planning: true, lenient: true}
	for _, m := range spec.Manifests {
		more := &found{limit: limit - len(all)}
		err := in.list(ctx, m, sel, more)
		if errors.Is(err, errTooMany) {
			err = tooMany(m, limit)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, o := range more.objects {
			all = append(all, Listed{Object: o, Input: o.Name})
		}
	}
	allowed := allow.Of(ctx)
	for _, pattern := range spec.Inputs {
		for _, root := range matches(allowed, pattern) {
			if limit <= len(all) {
				return nil, nil, fmt.Errorf("list the inputs: %w", errTooMany)
			}
			objects, err := in.expand(ctx, []string{root}, sel, limit-len(all))
			if err != nil {
				return nil, nil, err
			}
			base := inputURL(root)
			for _, o := range objects {
				l := Listed{Object: o, Input: root}
				if rest, ok := strings.CutPrefix(o.Name, base); ok && rest != "" {
					l.Below = strings.Split(rest, "/")
				}
				all = append(all, l)
			}
		}
	}
	return all, sel.notes(), nil
}

// matches returns what a glob of local files matches, and any other input as it is.
func matches(allowed *allow.Inputs, pattern string) []string {
	if strings.Contains(pattern, "://") || !strings.ContainsAny(pattern, `*?[`) || !filepath.IsAbs(pattern) {
		return []string{pattern}
	}
	if _, err := allowed.Stat(pattern); !errors.Is(err, fs.ErrNotExist) {
		return []string{pattern} // a name that looks like a glob
	}
	found, err := allowed.Glob(pattern)
	if err != nil || len(found) == 0 {
		return []string{pattern} // the listing reports it
	}
	return found
}

// inputURL returns what the URLs of the objects below an input begin with.
func inputURL(input string) string {
	switch {
	case strings.HasPrefix(input, "s3://"):
		// The objects of a glob are named below the folder in which the glob begins.
		if at := strings.IndexAny(input, `*?[`); at >= 0 {
			input = input[:strings.LastIndexByte(input[:at], '/')]
		}
		return strings.TrimSuffix(input, "/") + "/"
	case strings.HasPrefix(input, "file://"):
		if name, err := pathOf(input); err == nil {
			input = name
		}
	}
	return strings.TrimSuffix(fileURL(filepath.Clean(input)), "/") + "/"
}
