package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Spec says what is exported, and where to.
type Spec struct {
	Lake string `json:"lake"`
	// DSN says how workers connect; see CheckDSN. Schema "" stands for DefaultSchema.
	DSN    string `json:"dsn"`
	Schema string `json:"schema,omitempty"`
	// Version is a version id or a tag, "" for the current version.
	Version string `json:"version,omitempty"`
	// Datasets and Domains bound what is exported; none stands for all. A schema has one slice.
	Datasets []string `json:"datasets,omitempty"`
	Domains  []string `json:"domains,omitempty"`
	// Layout is that of the numbers, "" for DefaultLayout.
	Layout string `json:"layout,omitempty"`
	// Partitions are TLDs, sites and hosts that get a partition of their own in each dataset that
	// is loaded.
	Partitions []string `json:"partitions,omitempty"`
	// Rebuild loads all datasets, also those that have not changed.
	Rebuild bool `json:"rebuild,omitempty"`
	// IDMap names datasets that bring the URL that was requested and the canonical one, as
	// DATASET=FIELD: the row's URL is the requested one, and the field of its extras has the
	// canonical one.
	IDMap []string `json:"id_map,omitempty"`
}

// DefaultLayout is the layout of numbers of a Spec that names none. The layout of the original
// document holds 255 top-level domains, and 255 subdomains of a domain, which is too few for real
// lists.
var DefaultLayout = domain64.Wide.String()

// MaxDomains is how many domains a slice may name.
const MaxDomains = 10_000

// Check sets the defaults, makes names canonical, and returns what is wrong with the request, an
// *InputError.
func (s *Spec) Check() error {
	s.Schema = cmp.Or(s.Schema, DefaultSchema)
	s.Layout = cmp.Or(s.Layout, DefaultLayout)
	if err := CheckDSN(s.DSN); err != nil {
		return inputf("dsn: %v", err)
	}
	if !schemaName.MatchString(s.Schema) || strings.HasPrefix(s.Schema, "pg_") || s.Schema == "public" || s.Schema == "information_schema" {
		return inputf("schema: %q is no name for a schema of its own; use lower-case letters, digits and _, as in %s", s.Schema, DefaultSchema)
	}
	if _, err := domain64.ParseLayout(s.Layout); err != nil {
		return inputf("layout: %v", err)
	}
	if len(s.Partitions) > MaxPartitions {
		return inputf("partitions: %d are too many, at most %d", len(s.Partitions), MaxPartitions)
	}
	if len(s.Domains) > MaxDomains {
		return inputf("domains: %d are too many, at most %d; leave them out to export all", len(s.Domains), MaxDomains)
	}
	if slices.Contains(s.Datasets, "") {
		return inputf("an empty name of a dataset")
	}
	for _, hosts := range []*[]string{&s.Domains, &s.Partitions} {
		var err error
		if *hosts, err = canonical(*hosts); err != nil {
			return err
		}
	}
	for _, m := range s.IDMap {
		if name, field, ok := strings.Cut(m, "="); !ok || name == "" || field == "" {
			return inputf("id_map: %q; use DATASET=FIELD, the field of the extras that has the canonical URL", m)
		}
	}
	return nil
}

// canonical returns hosts in canonical form, sorted.
func canonical(hosts []string) ([]string, error) {
	var out []string
	for _, text := range hosts {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), "http://"+text+"/")
		if err != nil || strings.ContainsAny(text, "/?#@") {
			return nil, inputf("%q is no domain or host; use a name such as example.com", text)
		}
		out = append(out, strings.Clone(u.Host))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// sliceName names what is exported, so that two exports of one schema can be compared.
func sliceName(datasets []uint32, domains, idMap []string) string {
	parts := []string{}
	add := func(kind string, list any) {
		if names := strings.Trim(fmt.Sprint(list), "[]"); names != "" {
			parts = append(parts, kind+" "+names)
		}
	}
	add("datasets", datasets)
	add("domains", domains)
	add("id_map", idMap)
	return cmp.Or(strings.Join(parts, ", "), "everything")
}
