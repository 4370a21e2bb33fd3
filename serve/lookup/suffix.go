package lookup

import (
	"cmp"
	"strings"

	"github.com/urlake/urlake/lake/urlnorm"
)

// IsPublicSuffix reports whether the target's host is a public suffix by the list that the version
// follows, or by this program's list if the lake lacks that one. Names directly below such a host
// are domains of their own, so an answer for the host holds none of their rows.
func (s *Snapshot) IsPublicSuffix(t Target) bool {
	list := cmp.Or(s.suffixes, urlnorm.BuiltinSuffixes())
	if strings.HasPrefix(t.Host, "[") || list.Domain(t.Host) != t.Host {
		return false
	}
	// An IP address or localhost is its own domain and has no names below it; the last label of an
	// address is a number, under which there are no domains.
	below := "a." + t.Host
	last := t.Host[strings.LastIndexByte(t.Host, '.')+1:]
	return t.Host != "localhost" && strings.Trim(last, "0123456789") != "" && list.Domain(below) == below
}

// LacksSuffixes reports whether the public suffix list that the version follows is not in the lake
// and not this program's. If so, a query also looks up the other domains that its host could belong
// to; see Answer.OtherDomains.
func (s *openVersion) LacksSuffixes() bool { return s.suffixes == nil }
