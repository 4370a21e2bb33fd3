package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/blob"
)

// Tag is a name for a version, which can be used in the place of its id.
type Tag struct {
	Name    string `json:"name"`
	Version string `json:"version"` // its id
}

var (
	// ErrTagged means that another version has the tag.
	ErrTagged = errors.New("tag of another version")
	// ErrUnknownTag means that no version has the tag.
	ErrUnknownTag = errors.New("unknown tag")
	// ErrBadTag means that a name cannot be one of a tag.
	ErrBadTag = errors.New("bad name of a tag")
)

// maxTags is the most tags of a lake: every server reads all of them whenever it polls.
const maxTags = 1000

// Versions begin with a digit, so that a tag is never taken for one.
var tagName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

// ValidTag tells whether a name can be one of a tag: 1 to 64 of A-Z a-z 0-9 . _ -, the first a
// letter. Current cannot.
func ValidTag(name string) bool {
	return tagName.MatchString(name) && !strings.EqualFold(name, Current)
}

// Current stands for the current version wherever a version is named.
const Current = "current"

// lost is the line that says that a tag is lost with its version.
func (t Tag) lost() string {
	return fmt.Sprintf("%s: the name %s of version %s is lost with it", ManifestKey, t.Name, t.Version)
}

// LostTags are lines that name the tags of versions, which are given by the keys of their objects.
func (m *Manifest) LostTags(keys []string) (lines []string) {
	for _, t := range m.Tags {
		if slices.Contains(keys, VersionKey(t.Version)) {
			lines = append(lines, t.lost())
		}
	}
	return lines
}

// findTag returns the index of a tag, or where it would be.
func (m *Manifest) findTag(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Tags, name, func(t Tag, name string) int { return cmp.Compare(t.Name, name) })
}

// TagsOf returns the tags of a version.
func (m *Manifest) TagsOf(id string) (names []string) {
	for _, t := range m.Tags {
		if t.Version == id {
			names = append(names, t.Name)
		}
	}
	return names
}

func (m *Manifest) checkTags(c *checker) {
	c.that("tags", len(m.Tags) <= maxTags, fmt.Sprintf("at most %d", maxTags), len(m.Tags))
	for i, t := range m.Tags {
		section := "tags[" + strconv.Itoa(i) + "]"
		c.that(section+".name", ValidTag(t.Name), "a name of a tag", t.Name)
		c.that(section+".name", i == 0 || m.Tags[i-1].Name < t.Name, "ascending names", t.Name)
		listed := slices.ContainsFunc(m.Versions, func(v VersionRef) bool { return v.ID == t.Version })
		c.that(section+".version", listed, "one of versions", t.Version)
	}
}

// SetTag gives a version a tag. It returns the version, and the one that had the tag before, "" if
// none had. Version is an id or another tag, or "" for the current version. If another version has
// the tag, the error is ErrTagged, unless move is set. Setting a tag again changes nothing.
func SetTag(ctx context.Context, store blob.Store, name, version string, move bool) (id, before string, err error) {
	if !ValidTag(name) {
		return "", "", fmt.Errorf("%w: %q; use 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter, but not current", ErrBadTag, name)
	}
	err = updateManifest(ctx, store, func(m *Manifest) (changed bool, err error) {
		ref, err := m.Version(version)
		if err != nil {
			return false, err
		}
		id, before = ref.ID, ""
		i, ok := m.findTag(name)
		if ok {
			before = m.Tags[i].Version
		}
		switch {
		case !ok && len(m.Tags) == maxTags:
			return false, fmt.Errorf("the lake has %d tags, which is the most; remove one first", maxTags)
		case !ok:
			m.Tags = slices.Insert(m.Tags, i, Tag{name, id})
		case m.Tags[i].Version == id:
			return false, nil
		case !move:
			return false, fmt.Errorf("%w: %s names %s", ErrTagged, name, m.Tags[i].Version)
		default:
			m.Tags[i].Version = id
		}
		return true, nil
	})
	if err != nil {
		return "", "", fmt.Errorf("set tag %s: %w", strconv.Quote(name), err)
	}
	return id, before, nil
}

// RemoveTag removes a tag and returns the version that had it. If none has, the error is
// ErrUnknownTag.
func RemoveTag(ctx context.Context, store blob.Store, name string) (id string, err error) {
	err = updateManifest(ctx, store, func(m *Manifest) (changed bool, err error) {
		i, ok := m.findTag(name)
		if !ok {
			return false, ErrUnknownTag
		}
		id = m.Tags[i].Version
		m.Tags = slices.Delete(m.Tags, i, i+1)
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("remove tag %s: %w", strconv.Quote(name), err)
	}
	return id, nil
}

// unknownVersion is the error for a name that is neither a version nor a tag.
func (m *Manifest) unknownVersion(name string) error {
	if len(m.Tags) > 0 && !ValidVersionID(name) {
		names := make([]string, len(m.Tags))
		for i, t := range m.Tags {
			names[i] = t.Name
		}
		const most = 10
		shown := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			shown += ", …"
		}
		return fmt.Errorf("%w %q; the tags are %s", ErrUnknownVersion, name, shown)
	}
	return fmt.Errorf("%w %q", ErrUnknownVersion, name)
}
