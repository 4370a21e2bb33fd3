package catalog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/urlnorm"
)

// TargetKind says what a rule names.
type TargetKind string

// The kinds of rules.
const (
	// DomainTarget hides a domain with all hosts below it.
	DomainTarget TargetKind = "domain"
	// HostTarget hides one host, without hosts below it.
	HostTarget TargetKind = "host"
	// URLTarget hides one URL.
	URLTarget TargetKind = "url"
	// PrefixTarget hides all URLs of one host that begin with a text.
	PrefixTarget TargetKind = "prefix"
)

// maxReason is the most bytes of a reason, and of a name.
const maxReason = 2000

// Target is what a rule hides, in canonical form.
type Target struct {
	Kind TargetKind `json:"kind"`
	Host string     `json:"host"` // of a Domain, the domain
	// Scheme is "" if URLs of all schemes are meant. It is that of a URL or a Prefix.
	Scheme string `json:"scheme,omitempty"`
	// Port is 0 for the scheme's default.
	Port int32 `json:"port,omitempty"`
	// Path is the path and query of a URL, or what they begin with.
	Path string `json:"path,omitempty"`
}

// Takedown is a takedown.
type Takedown struct {
	ID string `json:"id"`
	Target
	// DatasetID is the only dataset in which the rule hides rows, 0 for all. Dataset is its name.
	DatasetID uint32 `json:"dataset_id,omitempty"`
	Dataset   string `json:"dataset,omitempty"`
	// From and To limit the rule to rows with a time from From on and before To, in milliseconds
	// since 1970. With either, rows without a time are not hidden.
	From *int64 `json:"from,omitempty"`
	To   *int64 `json:"to,omitempty"`
	// Reason and By are what the person who added the rule gave, Created is when.
	Reason  string    `json:"reason"`
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
}

// TargetError says why a text names nothing that a rule can hide, and what to write instead.
type TargetError struct {
	Kind         TargetKind
	Text, Detail string
}

func (e *TargetError) Error() string { return fmt.Sprintf("--%s %q: %s", e.Kind, e.Text, e.Detail) }

var targetScheme = regexp.MustCompile(`(?i)^\s*(https?|ftp)[:]`)

// ParseTarget makes the target of a kind from any spelling. The domain of a Domain is found by
// list. A URL or Prefix without a scheme is meant with every scheme. The error is a *TargetError.
func ParseTarget(list *urlnorm.SuffixList, kind TargetKind, text string) (Target, error) {
	bad := func(format string, args ...any) (Target, error) {
		return Target{}, &TargetError{kind, text, fmt.Sprintf(format, args...)}
	}
	text = strings.TrimSpace(text)
	// A canonical URL lacks control characters: the names of two lines would become one.
	if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
		return bad("character %d is %q; give one name or URL", utf8.RuneCountInString(text[:i])+1, text[i])
	}
	raw := text
	if kind == DomainTarget || kind == HostTarget {
		if strings.ContainsAny(text, "/?#@ \\") || text == "" {
			return bad("give a name alone, as in --%s example.com", kind)
		}
		if name, ok := strings.CutPrefix(text, "*."); ok {
			return bad("patterns are not known; --domain %s hides a domain with all its hosts", name)
		}
		raw = "http://" + text + "/"
	}
	u, err := urlnorm.Parse(list, raw)
	if err != nil {
		return bad("%v", err)
	}
	u = u.Clone()
	t := Target{Kind: kind, Host: u.Host}
	switch kind {
	case DomainTarget:
		below := list.Domain("a." + u.Host)
		switch {
		case u.Port >= 0:
			return bad("a domain has no port")
		case u.Domain != u.Host:
			return bad("it is a host of the domain %s; use --host %s, or --domain %s", u.Domain, u.Host, u.Domain)
		case below == "a."+u.Host && u.Host != "localhost" && !strings.HasPrefix(u.Host, "["):
			return bad("it is a public suffix, and each name below it is a domain of its own; use --host %s for that host alone",
				u.Host)
		}
		return t, nil
	case HostTarget:
		if u.Port >= 0 {
			return bad("it has a port, and a host has all of them; use --prefix http://%s:%d/", u.Host, u.Port)
		}
		return t, nil
	case URLTarget, PrefixTarget:
	default:
		return bad("no such kind")
	}
	rest := text
	if m := targetScheme.FindString(text); m != "" {
		t.Scheme = u.Scheme
		rest = strings.TrimLeft(text[len(m):], "/\\")
	}
	rest = strings.TrimLeft(rest, "/\\")
	t.Path = u.PathQuery
	if u.Port > 0 {
		t.Port = u.Port
	}
	if kind == URLTarget {
		return t, nil
	}
	if !strings.ContainsAny(rest, "/\\") {
		return bad("a prefix has the whole host and a slash, as in --prefix https://%s/; use --host %s for the host",
			u.Host, u.Host)
	}
	if strings.ContainsRune(text, '#') {
		return bad("it has a fragment, which no URL of a lake has")
	}
	// A prefix that ends in what the canonical form drops or moves would hide more than it says.
	if text[len(text)-1] != t.Path[len(t.Path)-1] || strings.Contains(text, "?") != strings.Contains(t.Path, "?") {
		return bad("its canonical form is %s, which ends otherwise; write what the URLs in the lake begin with", t)
	}
	return t, nil
}

// String returns the target's text.
func (t Target) String() string {
	if t.Kind == DomainTarget || t.Kind == HostTarget {
		return t.Host
	}
	s := t.Host
	if t.Scheme != "" {
		s = t.Scheme + "://" + s
	}
	if t.Port > 0 {
		s += ":" + strconv.Itoa(int(t.Port))
	}
	return s + t.Path
}

// Digest is what the record of a rule has in the place of its text: the SHA-256 of the kind, a
// space and the text. Whoever has the text can tell that the rule was about it.
func (t Target) Digest() string {
	sum := sha256.Sum256([]byte(string(t.Kind) + " " + t.String()))
	return hex.EncodeToString(sum[:])
}

// Same reports whether two rules hide the same rows.
func (r *Takedown) Same(o *Takedown) bool {
	same := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	return r.Target == o.Target && r.DatasetID == o.DatasetID && same(r.From, o.From) && same(r.To, o.To)
}

// NewTakedownID returns an id for a rule that is added now.
func NewTakedownID(now time.Time) string {
	var b [5]byte
	rand.Read(b[:])
	return now.UTC().Format("20060102") + "-" + hex.EncodeToString(b[:])
}

var idForm = regexp.MustCompile(`^[0-9]{8}-[0-9a-f]{10}$`)

// validTakedownID tells whether a text can be the id of a rule.
func validTakedownID(id string) bool { return idForm.MatchString(id) }

// check tells whether the rule is one that can be stored.
func (r *Takedown) check() error {
	paths := r.Kind == URLTarget || r.Kind == PrefixTarget
	switch {
	case !validTakedownID(r.ID):
		return fmt.Errorf("id %q", r.ID)
	case r.Kind != DomainTarget && r.Kind != HostTarget && !paths:
		return fmt.Errorf("kind %q", r.Kind)
	case r.Host == "" || len(r.Host) > 255:
		return fmt.Errorf("a host of %d bytes", len(r.Host))
	case paths != strings.HasPrefix(r.Path, "/"), !paths && (r.Scheme != "" || r.Port != 0 || r.Path != ""):
		return fmt.Errorf("%s with the path %q", r.Kind, r.Path)
	case r.Port < 0 || r.Port > 65535:
		return fmt.Errorf("port %d", r.Port)
	case r.Reason == "" || len(r.Reason) > maxReason || len(r.By) > maxReason:
		return fmt.Errorf("a reason of %d bytes, allowed are 1 to %d", len(r.Reason), maxReason)
	case r.From != nil && r.To != nil && *r.From >= *r.To:
		return errors.New("a time span that ends before it begins")
	}
	return nil
}

// Names are the domains of which the rule can hide rows whatever the public suffix list: the host
// and all names above it. Rows of a Domain can also be of domains below it, if a list has it as a
// public suffix.
func (t *Target) Names() (names []string) {
	if strings.HasPrefix(t.Host, "[") {
		return []string{t.Host}
	}
	for name := t.Host; ; {
		names = append(names, name)
		_, above, ok := strings.Cut(name, ".")
		if !ok {
			return names
		}
		name = above
	}
}

// below reports whether host is the name or below it.
func below(host, name string) bool {
	rest, ok := strings.CutSuffix(host, name)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}
