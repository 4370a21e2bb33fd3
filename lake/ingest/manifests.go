package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/lake/ingest/inventory"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// maxManifest is the largest size in bytes of a manifest.json, or of a list of inputs: as many
// lines as a batch has objects, of 128 bytes.
const maxManifest = 128 << 20

// list adds the objects that a manifest lists and sel selects. A manifest is a manifest.json of S3
// Inventory, or text with an input a line, plain or compressed. Blank lines and those that begin
// with # are left out.
func (in *inputs) list(ctx context.Context, manifest string, sel *selection, all *found) error {
	var one found
	one.limit = 2
	if err := in.find(ctx, manifest, new(selection), &one); err != nil && !errors.Is(err, errTooMany) {
		return err
	}
	switch len(one.objects) {
	case 0:
		return &InputError{Object: manifest, Reason: "there is nothing there"}
	case 1:
	default:
		return &InputError{Object: manifest, Reason: fmt.Sprintf("want one manifest, not %d objects", len(one.objects))}
	}
	o := one.objects[0]
	data, err := in.content(ctx, o)
	if err != nil {
		return err
	}
	hidden, unwanted, before := sel.hidden.n, sel.unwanted.n, len(all.objects)
	if inventory.Is(data) {
		err = in.listReport(ctx, o, data, sel, all)
	} else {
		err = in.listLines(ctx, o, string(data), sel, all)
	}
	if err == nil && len(all.objects) == before && sel.hidden.n == hidden && sel.unwanted.n == unwanted {
		return &InputError{Object: o.Name, Reason: "it lists nothing"}
	}
	return err
}

// listReport adds the objects of a report of S3 Inventory.
func (in *inputs) listReport(ctx context.Context, o object, data []byte, sel *selection, all *found) error {
	m, err := inventory.Parse(data)
	if err != nil {
		return &InputError{Object: o.Name, Reason: err.Error(), Err: err}
	}
	var unknown []int // objects of which the report has no size or no ETag
	for _, file := range m.Files {
		if err := in.listFile(ctx, o, m, file, sel, all, &unknown); err != nil {
			return err
		}
	}
	return in.statAll(ctx, all, unknown)
}

// content returns the content of a manifest without its compression.
func (in *inputs) content(ctx context.Context, o object) ([]byte, error) {
	r, err := in.open(ctx, o, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	src := unpack.New(r)
	if _, err := src.Decompress(""); err != nil {
		return nil, in.contentError(o, src, err)
	}
	data, err := io.ReadAll(io.LimitReader(src, maxManifest+1))
	switch {
	case err != nil:
		return nil, in.contentError(o, src, err)
	case len(data) > maxManifest:
		return nil, &InputError{Object: o.Name, Reason: fmt.Sprintf("a manifest of more than %d MiB", maxManifest>>20)}
	}
	return data, r.check()
}

// contentError returns the error of a store as it is, and any other as one of the object.
func (in *inputs) contentError(o object, src *unpack.Source, err error) error {
	if src.Err != nil {
		return src.Err
	}
	return &InputError{Object: o.Name, Reason: err.Error(), Err: err}
}

// listLines adds the objects of inputs that stand one a line.
func (in *inputs) listLines(ctx context.Context, o object, text string, sel *selection, all *found) error {
	var n, offset int64
	for line := range strings.Lines(text) {
		n++
		at := offset
		offset += int64(len(line))
		pattern := strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		err := in.findSome(ctx, pattern, sel, all)
		var input *InputError
		if errors.As(err, &input) {
			return &InputError{Object: o.Name, Line: n, Offset: at, Reason: input.Error(), Err: input.Err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listFile adds the objects of one data file of a report.
func (in *inputs) listFile(
	ctx context.Context, manifest object, m *inventory.Manifest, file inventory.File, sel *selection, all *found, unknown *[]int,
) error {
	data, err := in.dataFile(ctx, manifest, m, file)
	if err != nil {
		return err
	}
	allowed := allow.Of(ctx)
	var of error // an error of yield, which has its own object
	err = m.Read(file, func() (inventory.Source, error) {
		r, err := in.open(ctx, data, 0)
		of = err
		return r, err
	}, func(listed inventory.Object) error {
		name := "s3://" + listed.Bucket + "/"
		if strings.HasSuffix(listed.Key, "/") || !sel.below(name, strings.Split(listed.Key, "/"), false) {
			return nil // what ends in a slash marks a folder
		}
		name += listed.Key
		if of = allowed.Key(listed.Bucket, listed.Key); of == nil {
			of = blob.CheckKey(listed.Key)
		}
		if of != nil {
			of = in.keyError(name, of)
			return of
		}
		if listed.Size < 0 || listed.ETag == "" {
			*unknown = append(*unknown, len(all.objects))
		}
		of = all.add(object{Name: name, Bytes: max(listed.Size, 0), ETag: listed.ETag})
		return of
	})
	switch {
	case of != nil:
		return of
	case err != nil:
		return inventoryError(data, err)
	}
	return nil
}

// inventoryError makes an *InputError of what package inventory says about a data file. An error of
// the store stays.
func inventoryError(data object, err error) error {
	var bad *InputError
	if e := inputError(data, err); errors.As(e, &bad) {
		return e
	}
	if errors.Is(err, blob.ErrDenied) || errors.Is(err, context.Canceled) {
		return err
	}
	return &InputError{Object: data.Name, Reason: err.Error(), Err: err}
}

// dataFile finds a data file of a report: in the bucket that the manifest names, or for a local
// copy of the manifest beside it, in a folder data beside it, or in the folder data beside its own.
func (in *inputs) dataFile(ctx context.Context, manifest object, m *inventory.Manifest, file inventory.File) (object, error) {
	patterns := []string{"s3://" + m.Bucket + "/" + file.Key}
	if name, err := pathOf(manifest.Name); err == nil && strings.HasPrefix(manifest.Name, "file:") {
		dir, base := path.Dir(name), path.Base(file.Key)
		patterns = []string{path.Join(dir, base), path.Join(dir, "data", base), path.Join(path.Dir(dir), "data", base)}
	}
	for _, p := range patterns {
		all := found{limit: 1}
		if strings.HasPrefix(p, "/") {
			p = fileURL(p)
		}
		err := in.find(ctx, p, new(selection), &all)
		var input *InputError
		if errors.As(err, &input) && errors.Is(err, allow.ErrRefused) || err != nil && input == nil {
			return object{}, err
		}
		if err == nil && len(all.objects) == 1 {
			if o := all.objects[0]; file.Size > 0 && o.Bytes != file.Size {
				return object{}, &InputError{Object: o.Name,
					Reason: fmt.Sprintf("it has %d bytes, and %d in %s", o.Bytes, file.Size, manifest.Name)}
			}
			return all.objects[0], nil
		}
	}
	return object{}, &InputError{Object: manifest.Name, Reason: "its data file " + file.Key + " is not there; looked for " +
		strings.Join(patterns, ", ")}
}

// statAll completes objects of which a report did not have size and ETag.
func (in *inputs) statAll(ctx context.Context, all *found, unknown []int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for _, i := range unknown {
		o := &all.objects[i]
		g.Go(func() error {
			bucket, key, _ := strings.Cut(strings.TrimPrefix(o.Name, "s3://"), "/")
			store, err := in.bucket(ctx, bucket)
			if err != nil {
				return err
			}
			info, err := store.Stat(ctx, key)
			if err != nil {
				return in.keyError(o.Name, err)
			}
			o.Bytes, o.ETag = info.Size, info.ETag
			return nil
		})
	}
	return g.Wait()
}
