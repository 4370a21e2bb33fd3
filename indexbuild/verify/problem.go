package verify

import (
	"context"
	"errors"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// maxProblems is how many problems a report describes. Further ones are counted.
const maxProblems = 20

// Problem is something that Segment has found wrong.
type Problem struct {
	Object string `json:"place"`   // key
	Text   string `json:"problem"` // one line: the object, the place in it, what is wrong, what to do
}

// remedy says what to do about a problem with an object.
func (v *verifier) remedy(object string) string {
	if v.intact && strings.HasPrefix(object, segment.Prefix(v.ref.ID)) {
		return "the files are as they were built, so report this as a bug"
	}
	return lake.Remedy(v.store.URL(), object)
}

// findings are problems in the order in which they are reported.
type findings struct {
	list []error // the first maxProblems
	n    int64
}

func (f *findings) add(err error) {
	if f.n++; len(f.list) < maxProblems {
		f.list = append(f.list, err)
	}
}

func (f *findings) addAll(g *findings) {
	for _, err := range g.list {
		f.add(err)
	}
	f.n += g.n - int64(len(g.list))
}

// problem adds err if it says that data are wrong, and returns any other error. object is what was
// read.
func (f *findings) problem(ctx context.Context, object string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, blob.ErrNotExist):
		err = codec.Corrupt(object, "object", -1, "one that exists", "none")
	case errors.Is(err, blob.ErrRange):
		err = codec.Corrupt(object, "object", -1, "the bytes that the index names", "fewer")
	case !errors.Is(err, codec.ErrCorrupt):
		return err
	}
	// A CorruptError names object and place. The errors around it would name the object again.
	var c *codec.CorruptError
	if errors.As(err, &c) {
		err = c
	}
	f.add(err)
	return nil
}

// wrong adds a problem: a section of an object is got instead of want.
func (f *findings) wrong(object, section string, want, got any) {
	f.add(codec.Corrupt(object, section, -1, want, got))
}

func (v *verifier) problem(object string, err error) error {
	return v.found.problem(v.ctx, object, err)
}

func (v *verifier) wrong(object, section string, want, got any) {
	v.found.wrong(object, section, want, got)
}

// objectOf returns the object that a problem is about.
func objectOf(err error) string {
	var c *codec.CorruptError
	if errors.As(err, &c) {
		return c.File
	}
	return ""
}
