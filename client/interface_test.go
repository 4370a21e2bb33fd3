package client_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// capture is a row of the lake of these tests, as its input has it.
type capture struct {
	URL  string    `json:"url"`
	Time time.Time `json:"ts"`
	Size int64     `json:"size"`
	Mime string    `json:"mime"`
}

func (c *capture) host() string { return strings.Split(c.URL, "/")[2] }
func (c *capture) path() string { return c.URL[len("https://")+len(c.host()):] }

// tourLake is a lake with a dataset of n captures of two hosts of example.com, every URL twice, and
// one of other domains, in another version. It returns the captures and the first version.
func tourLake(t *testing.T, n int) (store blob.Store, all []capture, first string) {
	t.Helper()
	store = blob.NewMemory()
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	for i := range n {
		c := capture{
			URL:  fmt.Sprintf("https://%s.example.com/%s/%03d", []string{"www", "docs"}[i%2], []string{"a", "b", "c"}[i%3], i/2),
			Time: time.UnixMilli(1_700_000_000_123 + int64(i)*3_600_000).UTC(), Size: int64(i) * 10,
			Mime: []string{"text/html", "image/png"}[i/7%2],
		}
		if i >= n/2 { // captured again
			c.URL = all[i-n/2].URL
		}
		all = append(all, c)
		if err := out.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "captures.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	spec := testlake.Spec(t, store, "captures", "b1", nil)
	spec.Inputs, spec.Extras = []string{file}, []string{"mime"}
	testlake.IngestSpec(t, store, spec)
	first = testlake.Publish(t, store).Version
	list := []testlake.Record{{URL: "https://www.example.com/a/000"}, {URL: "https://intranet/"}}
	for _, name := range []string{"a", "b", "c"} {
		list = append(list, testlake.Record{URL: "https://" + name + ".co.uk/"})
	}
	testlake.Ingest(t, store, "smallweb", "b1", list)
	testlake.Publish(t, store)
	return store, all, first
}

// recorder is a transport that keeps what was asked.
type recorder struct {
	mu   sync.Mutex
	list []*http.Request
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.list = append(r.list, q)
	r.mu.Unlock()
	return http.DefaultTransport.RoundTrip(q)
}

// described is what the test reads of the server's description.
type described struct {
	Paths map[string]map[string]*operation
	// Components has the schemas.
	Components struct{ Schemas map[string]*schema }
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
		Schema   struct{ Enum []string }
	}
	RequestBody struct {
		Content map[string]any
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema *schema }
		Kinds   []client.Kind `json:"x-problems"`
	}
}

type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]*schema
	Items      *schema
	OneOf      []*schema
	Enum       []any
}

// pages reports whether the operation answers only people. Its answers are HTML.
func (o *operation) pages() bool {
	content := o.Responses["200"].Content
	_, html := content["text/html"]
	return html && len(content) == 1
}

// same is what an operation is but for its name. A short path has the same.
func (o *operation) same() string {
	c := *o
	c.OperationID = ""
	text, _ := json.Marshal(c)
	return string(text)
}

// The client reaches every operation of the server's own description, with every parameter and each
// of its values, in every form of body and answer. The tour compares all that it gets with the
// input.
func TestClientReachesTheWholeInterface(t *testing.T) {
	store, all, first := tourLake(t, 60)
	base := serve(t, store)
	asked := &recorder{}
	c := dial(t, base, client.Options{HTTP: &http.Client{Transport: asked}})
	tour(t, c, all, first)

	var doc described
	text, err := c.OpenAPI(t.Context())
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	served := map[string]*operation{}
	for path, item := range doc.Paths {
		for method, o := range item {
			pattern := strings.ToUpper(method) + " " + path
			if path == "/" {
				pattern += "{$}"
			}
			served[pattern] = o
			mux.HandleFunc(pattern, http.NotFound)
		}
	}
	used := map[string]map[string]bool{} // by operation: parameters, their values, types of bodies and answers
	note := func(o, what string) {
		if used[o] == nil {
			used[o] = map[string]bool{}
		}
		used[o][what] = true
	}
	for _, r := range asked.list {
		_, pattern := mux.Handler(r)
		o := served[pattern]
		if o == nil {
			t.Fatalf("%s %s is not described", r.Method, r.URL)
		}
		note(o.OperationID, "")
		for name, values := range r.URL.Query() {
			note(o.OperationID, name)
			for _, v := range values {
				note(o.OperationID, name+"="+v)
			}
		}
		note(o.OperationID, "body "+r.Header.Get("Content-Type"))
		accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
		note(o.OperationID, "answer "+accept)
	}
	reached := map[string]bool{}
	for _, o := range served {
		if used[o.OperationID] != nil {
			reached[o.same()] = true
		}
	}
	operations, parameters := 0, 0
	for _, o := range served {
		if o.pages() {
			continue
		}
		operations++
		if !reached[o.same()] {
			t.Errorf("the client lacks the operation %s, or its tour does", o.OperationID)
		}
		of := used[o.OperationID]
		if of == nil { // a short path for another operation
			continue
		}
		lacks := func(what string) {
			if !of[what] {
				t.Errorf("%s: the client lacks %s, or its tour does", o.OperationID, what)
			}
		}
		for _, p := range o.Parameters {
			if p.In != "query" {
				continue
			}
			parameters++
			lacks(p.Name)
			on := slices.Contains(p.Schema.Enum, "0") // of a flag, one value is what it is without
			for _, v := range p.Schema.Enum {
				if !on && v != "json" {
					lacks(p.Name + "=" + v)
				}
			}
		}
		for kind := range o.RequestBody.Content {
			if kind != "application/json" { // taken for NDJSON
				lacks("body " + kind)
			}
		}
		for kind := range o.Responses["200"].Content {
			if kind != "text/html" {
				lacks("answer " + kind)
			}
		}
	}
	if operations < 10 || parameters < 40 {
		t.Errorf("the description has %d operations with %d parameters", operations, parameters)
	}
	t.Logf("%d operations with %d parameters, %d requests", operations, parameters, len(asked.list))
	t.Run("members", func(t *testing.T) { typesHaveAllMembers(t, &doc, served) })
	t.Run("kinds", func(t *testing.T) { kindsAreAll(t, c, served) })
}

// tour asks everything and compares the answers with the captures.
func tour(t *testing.T, c *client.Client, all []capture, first string) {
	t.Helper()
	ctx := t.Context()
	urls := func(list []client.URL) (texts []string) {
		for _, u := range list {
			texts = append(texts, u.URL)
		}
		slices.Sort(texts)
		return texts
	}
	selected := func(keep func(*capture) bool) (texts []string) {
		for i := range all {
			if keep(&all[i]) {
				texts = append(texts, all[i].URL)
			}
		}
		slices.Sort(texts)
		return texts
	}
	from, to := all[10].Time, all[40].Time
	for name, test := range map[string]struct {
		s    client.Selection
		keep func(*capture) bool
	}{
		"all":    {client.Selection{}, func(*capture) bool { return true }},
		"host":   {client.Selection{Host: "docs.example.com"}, func(c *capture) bool { return c.host() == "docs.example.com" }},
		"prefix": {client.Selection{Prefix: "/b/"}, func(c *capture) bool { return strings.HasPrefix(c.path(), "/b/") }},
		"from":   {client.Selection{From: from}, func(c *capture) bool { return !c.Time.Before(from) }},
		"to":     {client.Selection{To: to}, func(c *capture) bool { return c.Time.Before(to) }},
		// A time within a millisecond is before no row that the millisecond is of.
		"between": {client.Selection{From: from.Add(1), To: to.Add(1)}, func(c *capture) bool { return c.Time.After(from) && !c.Time.After(to) }},
		"filter": {
			client.Selection{Filters: []string{"mime=image/png", "mime~^image"}},
			func(c *capture) bool { return c.Mime == "image/png" },
		},
	} {
		for _, size := range []int64{0, 7} {
			opt := client.URLsOptions{Selection: test.s, PageSize: size}
			want := selected(test.keep)
			if got := urls(collect(t, c.URLs(ctx, "example.com", "captures", opt))); !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %d URLs, want %d", name, size, len(got), len(want))
			}
			if got := urls(collect(t, c.URLRows(ctx, "example.com", "captures", opt))); !slices.Equal(got, want) {
				t.Errorf("%s in streams of %d: %d URLs, want %d", name, size, len(got), len(want))
			}
		}
	}
	distinct := collect(t, c.URLRows(ctx, "example.com", "captures", client.URLsOptions{
		PageSize: 10, Selection: client.Selection{Unique: true},
	}))
	if len(distinct) != len(all)/2 || distinct[0].Rows != 2 || !distinct[0].Last.After(distinct[0].First.Time) {
		t.Errorf("%d distinct URLs, the first %+v", len(distinct), distinct[0])
	}
	older := client.URLsOptions{Query: client.Query{Version: first}, Offset: 20, PageSize: 5}
	older.Fields = []string{"url_id", "url", "domain", "scheme", "host", "port", "path", "ts", "size", "extras", "raw_url", "batch"}
	rows := collect(t, c.URLRows(ctx, "example.com", "captures", older))
	if paged := collect(t, c.URLs(ctx, "example.com", "captures", older)); !slices.EqualFunc(rows, paged, func(a, b client.URL) bool { return reflect.DeepEqual(a, b) }) ||
		len(rows) != len(all)-20 {
		t.Errorf("%d rows of a stream, %d of pages", len(rows), len(paged))
	}
	for _, u := range rows {
		i := slices.IndexFunc(all, func(c capture) bool { return c.URL == u.URL && c.Time.Equal(u.Time.Time) })
		if i < 0 || *u.Size != all[i].Size || u.Host != all[i].host() || u.Path != all[i].path() || u.Scheme != "https" || u.Port != nil ||
			u.Domain != "example.com" || string(u.Extras["mime"]) != strconv.Quote(all[i].Mime) || u.Batch != "b1" {
			t.Errorf("row %+v", u)
		}
	}
	for page, err := range c.URLPages(ctx, "example.com", "captures", client.URLsOptions{
		Query: client.Query{Explain: true}, Selection: client.Selection{Prefix: "/", To: to},
	}) {
		if err != nil || page.Explain == nil || page.Selection == nil || !page.Selection.To.Equal(to) || page.Total != nil || page.TotalUnknown == "" {
			t.Errorf("%+v, %v", page, err)
		}
	}
	// A stream with PageSize says where it goes on.
	part := client.URLsOptions{PageSize: 25}
	s, err := c.URLStream(ctx, "example.com", "captures", client.Text, part)
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, s)
	if part.Cursor = s.NextCursor(); s.Rows() != 25 || part.Cursor == "" || *s.Total != int64(len(all)) || strings.Count(text, "\n") != 25 {
		t.Errorf("%d rows of %d, cursor %q", s.Rows(), *s.Total, part.Cursor)
	}
	part.PageSize = 0
	rest, err := c.URLStream(ctx, "example.com", "captures", client.CSV, part)
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(strings.NewReader(read(t, rest))).ReadAll()
	if err != nil || len(table) != 1+len(all)-25 || rest.NextCursor() != "" {
		t.Errorf("%d lines of CSV, %v", len(table), err)
	}
	file, err := c.URLStream(ctx, "example.com", "captures", client.Parquet, client.URLsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if data := read(t, file); !strings.HasPrefix(data, "PAR1") || !strings.HasSuffix(data, "PAR1") || file.Rows() != int64(len(all)) {
		t.Errorf("%d bytes of Parquet with %d rows", len(data), file.Rows())
	}

	domain, err := c.Domain(ctx, "www.example.com", client.Query{Version: "current", Explain: true})
	if err != nil || domain.Host != "www.example.com" || domain.TotalsOf != "domain" || len(domain.Datasets) != 2 ||
		domain.Datasets[0].Rows != int64(len(all)) || domain.Explain == nil {
		t.Errorf("%+v, %v", domain, err)
	}
	suffix, err := c.Domain(ctx, "co.uk", client.Query{})
	if err != nil || !suffix.PublicSuffix || suffix.DomainsBelow == nil || *suffix.DomainsBelow != 3 || suffix.DomainsBelowList == "" {
		t.Errorf("%+v, %v", suffix, err)
	}
	below := collect(t, c.Domains(ctx, client.DomainsOptions{Suffix: ".co.uk", PageSize: 2}))
	if len(below) != 3 || below[0].Domain != "a.co.uk" || below[0].Rows != 1 || below[0].Datasets != 1 {
		t.Errorf("%+v", below)
	}
	for page, err := range c.DomainsPages(ctx, client.DomainsOptions{
		Query: client.Query{Version: first, Explain: true}, Prefix: "ex", Dataset: "captures",
	}) {
		if err != nil || len(page.Domains) != 1 || page.Domains[0].Rows != int64(len(all)) || page.Explain == nil || page.Version != first {
			t.Errorf("%+v, %v", page, err)
		}
	}
	holders, err := c.Holders(ctx, "HTTPS://www.example.com/a/000#top", client.Query{Explain: true})
	if err != nil || holders.URL != "https://www.example.com/a/000" || len(holders.Datasets) != 2 || holders.Datasets[0].Rows != 2 ||
		holders.Datasets[1].First != nil || holders.Explain == nil {
		t.Errorf("%+v, %v", holders, err)
	}
	if before, err := c.Holders(ctx, "https://www.example.com/a/000", client.Query{Version: first}); err != nil || len(before.Datasets) != 1 ||
		!before.Datasets[0].First.Equal(all[0].Time) || !before.Datasets[0].Last.Equal(all[len(all)/2].Time) {
		t.Errorf("%+v, %v", before, err)
	}
	dataset, err := c.Dataset(ctx, "captures", client.At{Version: first})
	if err != nil || dataset.Domains != 1 || dataset.Rows != int64(len(all)) || dataset.ByRows[0].Domain != "example.com" || len(dataset.BySize) != 1 {
		t.Errorf("%+v, %v", dataset, err)
	}
	if list := collect(t, c.Datasets(ctx, client.DatasetsOptions{At: client.At{Version: first}})); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	for _, sort := range []string{"name", "rows", "size"} {
		rows, hosts := int64(0), int64(0)
		for page, err := range c.Tree(ctx, "example.com", client.TreeOptions{
			Query: client.Query{Version: first, Explain: true}, Dataset: "captures", Depth: 2, Sort: sort, PageSize: 1, MinCount: 1,
		}) {
			if err != nil || page.Rows != int64(len(all)) || hosts == 0 && page.Explain == nil || len(page.Children) > 1 || page.TotalChildren < 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			for _, host := range page.Children {
				rows, hosts = rows+host.Rows, hosts+1
				if host.TotalChildren < int64(len(host.Children.Nodes)) || host.Path != host.Name {
					t.Errorf("%+v", host)
				}
			}
			if page.Complete && (rows != page.Rows || hosts != page.MatchingChildren) {
				t.Errorf("by %s: %d rows of %d hosts, want %d of %d", sort, rows, hosts, page.Rows, page.MatchingChildren)
			}
		}
	}
	for page, err := range c.Tree(ctx, "example.com", client.TreeOptions{Path: "www.example.com/", Top: 1, MinBytes: 1}) {
		if err != nil || page.Path != "www.example.com/" || len(page.Children) > 1 {
			t.Errorf("%+v, %v", page, err)
		}
		break
	}
	// A list of another query has no place for the cursor, which the server says.
	other := client.Query{Cursor: part.Cursor}
	_, inDomain := c.Domain(ctx, "example.com", other)
	_, inHolders := c.Holders(ctx, "https://www.example.com/", other)
	for _, err := range c.Datasets(ctx, client.DatasetsOptions{Cursor: part.Cursor}) {
		if !errors.Is(err, client.BadCursor) || !errors.Is(inDomain, client.BadCursor) || !errors.Is(inHolders, client.BadCursor) {
			t.Errorf("the cursor of another query: %v; %v; %v", err, inDomain, inHolders)
		}
	}
	tourVersions(t, c, first)
	tourLists(t, c, all, first)
	if err := c.Health(ctx); err != nil {
		t.Error(err)
	}
	if k, err := c.ProblemKind(ctx, client.Computing); err != nil || !slices.Equal(k.Statuses, []int{503}) {
		t.Errorf("%+v, %v", k, err)
	}
	if r, err := c.Ready(ctx); err != nil || r.Status != "ready" {
		t.Errorf("%+v, %v", r, err)
	}
	if metrics, err := c.Metrics(ctx); err != nil || !bytes.Contains(metrics, []byte("urlake_http_")) {
		t.Errorf("%.100s, %v", metrics, err)
	}
}

// tourVersions asks about versions.
func tourVersions(t *testing.T, c *client.Client, first string) {
	t.Helper()
	if list := collect(t, c.Versions(t.Context(), client.VersionsOptions{PageSize: 1})); len(list) != 2 || list[1].ID != first {
		t.Errorf("%+v", list)
	}
	for page, err := range c.DiffPages(t.Context(), client.DiffOptions{From: first, To: "current", Dataset: "smallweb", Explain: true}) {
		if err != nil || len(page.Changes) != 5 || page.Explain == nil {
			t.Errorf("%+v, %v", page, err)
		}
	}
	if list := collect(t, c.Diff(t.Context(), client.DiffOptions{PageSize: 2})); len(list) != 5 {
		t.Errorf("%+v", list)
	}
}

// tourLists looks up lists.
func tourLists(t *testing.T, c *client.Client, all []capture, first string) {
	t.Helper()
	ctx := t.Context()
	list := []string{"docs.example.com", "", "mailto:me", "co.uk", "absent.test", "https://a.co.uk/?q=\"1\"\n"}
	found := collect(t, c.Lookup(ctx, slices.Values(list), client.LookupOptions{}))
	if len(found) != len(list) {
		t.Fatalf("%d answers", len(found))
	}
	for i, f := range found {
		if f.Line != int64(i+1) || f.Asked != list[i] {
			t.Errorf("answer %d is that of %d, %q", i, f.Line, f.Asked)
		}
	}
	if f := found[0]; f.Domain != "example.com" || f.Host != "docs.example.com" || f.Total != 2 || f.Datasets[0].Rows != int64(len(all)) {
		t.Errorf("%+v", f)
	}
	if found[1].Reason == "" || found[2].Reason != "scheme" || !found[3].PublicSuffix || found[4].Total != 0 || found[5].Domain != "a.co.uk" {
		t.Errorf("%+v", found)
	}
	matrix := collect(t, c.Lookup(ctx, slices.Values(list[:1]), client.LookupOptions{Matrix: true, Datasets: []string{"smallweb", "captures"}}))
	sum := int64(0)
	for _, c := range all {
		sum += c.Size
	}
	if f := matrix[0]; f.Rows["captures"] != int64(len(all)) || f.Rows["smallweb"] != 1 || f.Sizes["smallweb"].Valid ||
		f.Sizes["captures"] != (client.Size{Bytes: sum, Valid: true}) {
		t.Errorf("%+v", f)
	}
	before := collect(t, c.Lookup(ctx, slices.Values(list), client.LookupOptions{At: client.At{Version: first}}))
	if before[0].Total != 1 || before[5].Total != 0 {
		t.Errorf("%+v", before)
	}
	present := collect(t, c.Lookup(ctx, slices.Values(list[5:]), client.LookupOptions{Matrix: true, Presence: true}))
	if f := present[0]; !f.Present["smallweb"] || len(f.Present) != 1 {
		t.Errorf("%+v", f)
	}
	for _, form := range []client.Format{client.Text, client.CSV} {
		s, err := c.LookupStream(ctx, []byte("example.com\nabsent.test\n"), form, client.CSV, client.LookupOptions{Presence: true})
		if err != nil {
			t.Fatal(err)
		}
		if table, err := csv.NewReader(strings.NewReader(read(t, s))).ReadAll(); err != nil || len(table) != 4 || s.Rows() != 2 || s.Version == "" {
			t.Errorf("%v, %v", table, err)
		}
	}
}

// read returns all of a stream.
func read(t *testing.T, s *client.Stream) string {
	t.Helper()
	defer s.Close()
	data, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// answerTypes are the types of the answers, by operation. An operation that answers JSON and is not
// here fails the test.
var answerTypes = map[string]any{
	"domain": client.DomainPage{}, "url": client.HoldersPage{}, "tree": client.TreePage{},
	"urls": client.URLPage{}, "datasets": client.DatasetPage{}, "dataset": client.DatasetTop{}, "domains": client.DomainsPage{},
	"lookup": client.Found{}, "versions": client.VersionPage{}, "diff": client.DiffPage{}, "ready": client.Ready{},
	"problem": client.ProblemKind{},
	"health":  struct{ Status string }{}, "openapi": struct{}{}, // an error, and text
}

// typesHaveAllMembers compares the members of the answers that are described with those of their
// types, both ways.
func typesHaveAllMembers(t *testing.T, doc *described, served map[string]*operation) {
	for _, o := range served {
		for kind, content := range o.Responses["200"].Content {
			if !strings.HasSuffix(kind, "json") || strings.HasSuffix(o.OperationID, "Short") || o.OperationID == "openapi" {
				continue
			}
			answer := answerTypes[o.OperationID]
			if answer == nil {
				t.Errorf("no type has the answers of %s", o.OperationID)
				continue
			}
			if kind == "application/x-ndjson" && o.OperationID == "urls" {
				answer = client.URL{}
			}
			sameMembers(t, doc, o.OperationID, content.Schema, reflect.TypeOf(answer))
		}
	}
}

func sameMembers(t *testing.T, doc *described, where string, s *schema, of reflect.Type) {
	for s.Ref != "" || len(s.OneOf) > 0 {
		if len(s.OneOf) > 0 {
			s = s.OneOf[0]
			continue
		}
		s = doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if s.Items != nil {
		sameMembers(t, doc, where, s.Items, of)
		return
	}
	if len(s.Properties) == 0 {
		return
	}
	has := map[string]reflect.Type{}
	fields(of, has)
	want, got := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(has))
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s, %s: members (-described +type):\n%s", where, of, diff)
		return
	}
	for name, inner := range s.Properties {
		sameMembers(t, doc, where+"."+name, inner, has[name])
	}
}

// fields adds the members of a type, with those of what it embeds.
func fields(of reflect.Type, to map[string]reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			fields(f.Type, to)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		to[cmp.Or(name, strings.ToLower(f.Name))] = f.Type
	}
}

// kindsAreAll compares the kinds that are described with the constants.
func kindsAreAll(t *testing.T, c *client.Client, served map[string]*operation) {
	described := map[client.Kind]bool{}
	for _, o := range served {
		for _, response := range o.Responses {
			for _, k := range response.Kinds {
				described[k] = true
			}
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[client.Kind]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Kind" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[client.Kind(text)] = true
		}
		return true
	})
	for k := range constants {
		// Kinds that no operation is described to have are explained too, such as that of no path.
		if got, err := c.ProblemKind(t.Context(), k); err != nil || got.Type != "/problems/"+string(k) || got.Remedy == "" {
			t.Errorf("%s: %+v, %v", k, got, err)
		}
	}
	for k := range described {
		if !constants[k] {
			t.Errorf("problem.go lacks the kind %s", k)
		}
	}
	if _, err := c.ProblemKind(t.Context(), "nothing"); !errors.Is(err, client.NoSuchPath) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// A list of more elements than a request takes is cut, and the answers keep their order, numbers
// and version.
func TestLongListsAreCut(t *testing.T) {
	store, _, _ := tourLake(t, 4)
	asked := &recorder{}
	c := dial(t, serve(t, store), client.Options{HTTP: &http.Client{Transport: asked}})
	const n = 100_001
	taken := 0
	list := func(yield func(string) bool) {
		for i := range n {
			taken++
			if !yield([]string{"example.com", "absent.test", "a.co.uk"}[i%3]) {
				return
			}
		}
	}
	at := int64(0)
	for f, err := range c.Lookup(t.Context(), list, client.LookupOptions{Presence: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if at++; f.Line != at || f.Total != []int64{1, 2, 0}[f.Line%3] {
			t.Fatalf("answer %d: %+v", at, f)
		}
	}
	version := asked.list[1].URL.Query().Get("version")
	if at != n || len(asked.list) != 2 || version == "" {
		t.Errorf("%d answers by %d requests, the second of version %q", at, len(asked.list), version)
	}
	// Long elements fill a request sooner.
	asked.list = nil
	long := "https://example.com/" + strings.Repeat("x", 100<<10)
	for _, err := range c.Lookup(t.Context(), slices.Values(slices.Repeat([]string{long}, 200)), client.LookupOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(asked.list) != 2 {
		t.Errorf("200 elements of 100 KiB by %d requests", len(asked.list))
	}
	// An iterator that is left takes no more of the list.
	taken = 0
	for range c.Lookup(t.Context(), list, client.LookupOptions{}) {
		break
	}
	if taken != 100_000 {
		t.Errorf("%d elements were taken", taken)
	}
	if got := collect(t, c.Lookup(t.Context(), slices.Values([]string(nil)), client.LookupOptions{})); len(got) > 0 {
		t.Errorf("an empty list: %v", got)
	}
}

// A stream that ends early is an error, wherever it ends and however the connection does.
func TestCutStreams(t *testing.T) {
	const row = `{"url":"https://example.com/"}` + "\n"
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		rows   int
		err    error
	}{
		"whole": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, row+row)
			w.Header().Set("Urlake-Rows", "2")
		}, 2, nil},
		"connection closed": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, row+row)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 2, client.ErrCut},
		"in a row": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, row+row[:9])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 1, client.ErrCut},
		"no trailer": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, row+row) }, 2, client.ErrCut},
		"fewer rows": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, row)
			w.Header().Set("Urlake-Rows", "2")
		}, 1, client.ErrCut},
		"the same cursor again": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, row)
			w.Header().Set("Urlake-Rows", "1")
			w.Header().Set("Urlake-Next-Cursor", "c")
		}, 2, errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
				w.Header().Set("Trailer", "Urlake-Rows, Urlake-Next-Cursor")
				c.answer(w)
			}))
			web.Start()
			defer web.Close()
			rows := 0
			var last error
			for _, err := range dial(t, web.URL, client.Options{}).URLRows(t.Context(), "example.com", "a", client.URLsOptions{}) {
				if last = err; err == nil {
					rows++
				}
			}
			if rows != c.rows || c.err == nil && last != nil || c.err != nil && last == nil ||
				errors.Is(c.err, client.ErrCut) && (!errors.Is(last, client.ErrCut) || !strings.Contains(last.Error(), "/v1/domain/example.com/")) {
				t.Errorf("%d rows, %v", rows, last)
			}
		})
	}
}
