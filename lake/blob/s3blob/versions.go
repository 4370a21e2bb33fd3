package s3blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/urlake/urlake/lake/blob"
)

// Versioning implements blob.Versioned.
func (s *store) Versioning(ctx context.Context) (blob.Versioning, error) {
	out, err := s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	if code, _ := apiError(err); code == "NotImplemented" {
		return blob.Unversioned, nil // the service knows no versions
	}
	if err != nil {
		return "", s.fail("ask for the versioning of", "", err)
	}
	switch out.Status {
	case types.BucketVersioningStatusEnabled:
		return blob.VersioningEnabled, nil
	case types.BucketVersioningStatusSuspended:
		return blob.VersioningSuspended, nil
	case "":
		return blob.Unversioned, nil
	}
	return "", s.fail("ask for the versioning of", "", fmt.Errorf("unknown state %q", out.Status))
}

// OldVersions implements blob.Versioned, in requests of 1,000 versions.
func (s *store) OldVersions(ctx context.Context, prefix string) iter.Seq2[blob.Version, error] {
	return func(yield func(blob.Version, error) bool) {
		if err := blob.CheckPrefix(prefix); err != nil {
			yield(blob.Version{}, fmt.Errorf("list versions: %w", err))
			return
		}
		pages := s3.NewListObjectVersionsPaginator(s.client, &s3.ListObjectVersionsInput{
			Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(blob.Version{}, s.fail("list versions", prefix, err))
				return
			}
			for i := range page.Versions {
				o := &page.Versions[i]
				key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
				if aws.ToBool(o.IsLatest) || !ok || strings.HasSuffix(key, "/") || strings.HasPrefix(key, blob.TmpDir+"/") {
					continue
				}
				err := blob.CheckKey(key)
				if id := aws.ToString(o.VersionId); err == nil && id == "" {
					err = fmt.Errorf("the store names no version of %q", key)
				}
				if err != nil {
					yield(blob.Version{}, blob.OpError("list versions", s.url, prefix, err))
					return
				}
				v := blob.Version{
					Info:     blob.Info{Key: key, Size: aws.ToInt64(o.Size), ETag: unquote(o.ETag)},
					ID:       *o.VersionId,
					Modified: aws.ToTime(o.LastModified).UTC(),
				}
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// DeleteVersions implements blob.Versioned, in requests of 1,000 versions.
func (s *store) DeleteVersions(
	ctx context.Context, versions []blob.Version, failed func(blob.Version, error),
) error {
	for _, v := range versions {
		if _, err := s.name(ctx, "delete", v.Key); err != nil {
			return err
		}
		if v.ID == "" {
			// A deletion without an id is one of the current version.
			return blob.OpError("delete", s.url, v.Key, errors.New("no version is named"))
		}
	}
	for batch := range slices.Chunk(versions, deleteBatch) {
		ids := make([]types.ObjectIdentifier, len(batch))
		for i, v := range batch {
			ids[i] = types.ObjectIdentifier{Key: aws.String(s.prefix + v.Key), VersionId: aws.String(v.ID)}
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			what := fmt.Sprintf("%s and %d other versions", batch[0].Key, len(batch)-1)
			if err = s.fail("delete", what, err); !errors.Is(err, blob.ErrDenied) || errors.Is(err, blob.ErrCredentials) {
				return err
			}
			for _, v := range batch {
				failed(v, err)
			}
			continue
		}
		for _, e := range out.Errors {
			code := aws.ToString(e.Code)
			if code == "NoSuchKey" || code == "NoSuchVersion" {
				continue
			}
			i := slices.IndexFunc(ids, func(id types.ObjectIdentifier) bool {
				return *id.Key == aws.ToString(e.Key) && *id.VersionId == cmp.Or(aws.ToString(e.VersionId), *id.VersionId)
			})
			if i < 0 {
				return s.fail("delete", "", fmt.Errorf("the store answered for %q, which was not asked", aws.ToString(e.Key)))
			}
			if code == "InvalidArgument" {
				// So versitygw says of a version that does not exist any more.
				_, err := s.stat(ctx, object{batch[i].Key, aws.String(batch[i].ID)})
				if errors.Is(err, blob.ErrNotExist) {
					continue
				}
			}
			err := fmt.Errorf("%s: %s", code, aws.ToString(e.Message))
			if denied[code] {
				err = fmt.Errorf("%w: %w", blob.ErrDenied, err)
			}
			failed(batch[i], blob.OpError("delete", s.url, batch[i].Key, err))
		}
	}
	return nil
}

// AtVersion implements blob.Versioned.
func (s *store) AtVersion(v blob.Version) blob.Store {
	return &versionStore{s, object{v.Key, aws.String(v.ID)}}
}

// versionStore is a store with one older version of an object.
type versionStore struct {
	s  *store
	of object
}

// errOldVersion is why an older version cannot be written or listed.
var errOldVersion = errors.New("an older version can only be read")

// at returns the version if the key is its own.
func (v *versionStore) at(op, key string) (object, error) {
	if key != v.of.key {
		return object{}, blob.OpError(op, v.s.url, key, blob.ErrNotExist)
	}
	return v.of, nil
}

func (v *versionStore) URL() string { return v.s.url }

func (v *versionStore) Stat(ctx context.Context, key string) (blob.Info, error) {
	o, err := v.at("stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return v.s.stat(ctx, o)
}

func (v *versionStore) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	o, err := v.at("get", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return v.s.getWhole(ctx, o)
}

func (v *versionStore) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	o, err := v.at("read", key)
	if err != nil {
		return nil, err
	}
	return v.s.readRange(ctx, o, off, n)
}

func (v *versionStore) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	o, err := v.at("open", key)
	if err != nil {
		return nil, err
	}
	return v.s.open(ctx, o, off, n)
}

func (v *versionStore) Put(_ context.Context, key string, _ []byte, _ blob.Condition) (blob.Info, error) {
	return blob.Info{}, blob.OpError("put", v.s.url, key, errOldVersion)
}

func (v *versionStore) Create(_ context.Context, key string) (blob.Writer, error) {
	return nil, blob.OpError("create", v.s.url, key, errOldVersion)
}

func (v *versionStore) List(_ context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		yield(blob.Info{}, blob.OpError("list", v.s.url, prefix, errOldVersion))
	}
}

func (v *versionStore) Delete(_ context.Context, keys ...string) error {
	return blob.OpError("delete", v.s.url, strings.Join(keys, " "), errOldVersion)
}
