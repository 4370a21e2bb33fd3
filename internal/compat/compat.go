// Package compat holds what later versions of urlake must go on to do: small lakes that earlier
// versions made, in testdata/lakes, with the answers that they gave. Its tests hold that today's
// code gives the same answers, works on such a lake, and leaves a lake alone that a newer version
// has written. docs/compatibility.md is the policy.
//
// Only tests import the package. The generator is TestFixture of internal/e2e, since it needs the
// programs.
package compat

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/starter/command"
)

// Files of a fixture.
const (
	lakeFile    = "lake.tar.zst"
	answersFile = "answers.json"
	sumsFile    = "SHA256SUMS"
)

// Folder is where the lakes are, below the root of the source tree.
const Folder = "internal/compat/testdata/lakes"

// All returns the folders of all fixtures, the oldest first. That there is none fails the test.
func All(tb testing.TB) []string {
	tb.Helper()
	entries, err := os.ReadDir(filepath.Join(testenv.Root(tb), Folder))
	if err != nil {
		tb.Fatal(err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(testenv.Root(tb), Folder, e.Name()))
		}
	}
	if len(dirs) == 0 {
		tb.Fatalf("no lake in %s", Folder)
	}
	return dirs
}

// Sums returns what the SHA256SUMS of a fixture is to hold: a line for each other file.
func Sums(dir string) (string, error) {
	var out strings.Builder
	for _, name := range []string{answersFile, lakeFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&out, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	return out.String(), nil
}

// Unpack unpacks the lake of a fixture into a new folder and returns its URL.
func Unpack(tb testing.TB, dir string) (lakeURL string) {
	tb.Helper()
	f, err := os.Open(filepath.Join(dir, lakeFile))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	root := tb.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return "file://" + filepath.ToSlash(root)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if !filepath.IsLocal(h.Name) {
			tb.Fatalf("%s: %s is outside of it", lakeFile, h.Name)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o777)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o666)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// Write writes a fixture of the lake in a local folder to dir, which must not exist.
func Write(dir, lakeDir string, answers *Answers) error {
	if err := os.Mkdir(dir, 0o777); err != nil { // never over an earlier one
		return err
	}
	var names []string
	err := filepath.WalkDir(lakeDir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(path string) bool { // .tmp has locks and no objects
		return strings.HasPrefix(path, lakeDir+string(filepath.Separator)+".")
	})
	var archive bytes.Buffer
	z, err := zstd.NewWriter(&archive, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, path := range names {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(lakeDir, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return err
	}
	text, err := answers.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, lakeFile), archive.Bytes(), 0o666); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, answersFile), text, 0o666); err != nil {
		return err
	}
	sums, err := Sums(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums), 0o666)
}

// Answers are what a lake answers.
type Answers struct {
	// Hosts are hosts of all rows of the lake.
	Hosts []string `json:"hosts"`
	// Requests are requests of the HTTP API, with the bodies of their answers.
	Requests []Request `json:"requests"`
	// Lists are whole lists of URLs, for versions of which Requests has not all pages.
	Lists []List `json:"lists"`
	// Commands are verbs of starter.
	Commands []Command `json:"commands"`
}

// Request is a request and its answer.
type Request struct {
	Path   string          `json:"path"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// List is a list of URLs, read page by page from Path on.
type List struct {
	Path string `json:"path"`
	Rows int    `json:"rows"`
	// SHA256 is that of a line for each row, sorted: url_id, URL and time, separated by tabs.
	SHA256 string `json:"sha256"`
}

// Command is a verb of starter, and what it prints as JSON. Args have not --lake and --json.
type Command struct {
	Args []string        `json:"args"`
	Code int             `json:"exit"`
	Out  json.RawMessage `json:"out"`
}

// encode writes one request, list or command a line.
func (a *Answers) encode() ([]byte, error) {
	var out bytes.Buffer
	hosts, err := json.Marshal(a.Hosts)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "{\"hosts\": %s", hosts)
	lines := func(name string, n int, at func(i int) any) {
		fmt.Fprintf(&out, ",\n%q: [", name)
		for i := range n {
			line, lineErr := json.Marshal(at(i))
			err = errors.Join(err, lineErr)
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteByte('\n')
			out.Write(line)
		}
		out.WriteString("\n]")
	}
	lines("requests", len(a.Requests), func(i int) any { return a.Requests[i] })
	lines("lists", len(a.Lists), func(i int) any { return a.Lists[i] })
	lines("commands", len(a.Commands), func(i int) any { return a.Commands[i] })
	out.WriteString("}\n")
	return out.Bytes(), err
}

// Read reads the answers of a fixture.
func Read(dir string) (*Answers, error) {
	data, err := os.ReadFile(filepath.Join(dir, answersFile))
	if err != nil {
		return nil, err
	}
	a := &Answers{}
	return a, json.Unmarshal(data, a)
}

// Asker asks a lake: a read server in this process, and starter.
type Asker struct {
	tb      testing.TB
	url     string
	server  *lookup.Server
	handler http.Handler
}

// Ask opens a lake for questions. It is closed when the test ends.
func Ask(tb testing.TB, lakeURL string) *Asker {
	tb.Helper()
	store, err := blob.Open(tb.Context(), lakeURL)
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	a := &Asker{tb: tb, url: lakeURL}
	a.server = lookup.NewServer(store, lookup.Options{CacheDir: tb.TempDir(), Log: log})
	tb.Cleanup(func() { a.server.Close() })
	a.handler = api.New(a.server, log, api.NewMetrics(a.server, blob.NewCounting(store)))
	a.Refresh()
	return a
}

// Close ends the server, which removes its lease.
func (a *Asker) Close() { a.server.Close() }

// Refresh makes the server read the manifest again.
func (a *Asker) Refresh() {
	a.tb.Helper()
	if err := a.server.Refresh(a.tb.Context()); err != nil {
		a.tb.Fatal(err)
	}
}

// Get sends a request.
func (a *Asker) Get(path string) Request {
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return Request{Path: path, Status: w.Code, Body: bytes.TrimSpace(w.Body.Bytes())}
}

// decode sends a request that must succeed.
func (a *Asker) decode(path string, into any) Request {
	a.tb.Helper()
	r := a.Get(path)
	if r.Status != 200 {
		a.tb.Fatalf("%s: %d %s", path, r.Status, r.Body)
	}
	if err := json.Unmarshal(r.Body, into); err != nil {
		a.tb.Fatalf("%s: %v", path, err)
	}
	return r
}

// Starter runs a verb of starter with --lake and --json. Lines of JSON become one array, and
// members that tell of now and not of the lake are dropped.
func (a *Asker) Starter(args ...string) Command {
	a.tb.Helper()
	out, errs, code := Starter(append(slices.Clone(args), "--lake", a.url, "--json")...)
	if out == "" {
		a.tb.Fatalf("starter %s: exit %d: %s", strings.Join(args, " "), code, errs)
	}
	out = strings.ReplaceAll(out, strings.TrimPrefix(a.url, "file://"), "LAKE")
	var docs []any
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var doc any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			a.tb.Fatalf("starter %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		docs = append(docs, lasting(doc))
	}
	data, err := json.Marshal(docs)
	if err != nil {
		a.tb.Fatal(err)
	}
	return Command{Args: args, Code: code, Out: data}
}

// lasting drops members of a document that are of the reader and not of the lake.
func lasting(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"program", "leases", "until", "not_looked_at", "parts_read", "staging_objects"} {
			delete(v, name)
		}
		for name := range v {
			v[name] = lasting(v[name])
		}
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
	}
	return v
}

// Starter runs starter in this process. There is no Temporal.
func Starter(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := command.New()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.Run(context.Background(), cmd)
	return out.String(), errs.String(), code
}

// page is what pages of all kinds have.
type page struct {
	Next     *string `json:"next"`
	Versions []struct {
		Version string   `json:"version"`
		Tags    []string `json:"tags"`
	} `json:"versions"`
	Datasets []struct {
		ID   int64  `json:"dataset_id"`
		Name string `json:"name"`
	} `json:"datasets"`
	Items []struct {
		URLID string  `json:"url_id"`
		URL   string  `json:"url"`
		TS    *string `json:"ts"`
	} `json:"items"`
}

// pages calls each with every page of a list.
func (a *Asker) pages(path string, each func(Request, *page)) {
	a.tb.Helper()
	for {
		var p page
		r := a.decode(path, &p)
		each(r, &p)
		if p.Next == nil {
			return
		}
		path = *p.Next
	}
}

// List reads a list of URLs.
func (a *Asker) List(path string) List {
	a.tb.Helper()
	var lines []string
	a.pages(path, func(_ Request, p *page) {
		for _, it := range p.Items {
			ts := ""
			if it.TS != nil {
				ts = *it.TS
			}
			lines = append(lines, it.URLID+"\t"+it.URL+"\t"+ts+"\n")
		}
	})
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return List{Path: path, Rows: len(lines), SHA256: hex.EncodeToString(sum[:])}
}

// Rows are the URLs of a version, with their times, sorted, by dataset.
type Rows map[string][]string

// Rows reads all rows of hosts in the current version, and holds that counts are those of lists.
func (a *Asker) Rows(hosts []string) Rows {
	a.tb.Helper()
	all := Rows{}
	for _, h := range hosts {
		a.pages("/v1/domain/"+url.PathEscape(h), func(r Request, p *page) {
			var counts struct {
				Domain   string
				Datasets []struct {
					Rows int `json:"url_count_est"`
				} `json:"datasets"`
			}
			if err := json.Unmarshal(r.Body, &counts); err != nil {
				a.tb.Fatal(err)
			}
			if counts.Domain != h {
				return // the domain of another host on the list, or of none
			}
			for i, d := range p.Datasets {
				n := 0
				a.pages(fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=1000", url.PathEscape(h), d.ID), func(_ Request, p *page) {
					for _, it := range p.Items {
						ts := ""
						if it.TS != nil {
							ts = *it.TS
						}
						all[d.Name] = append(all[d.Name], it.URL+" "+ts)
						n++
					}
				})
				if n != counts.Datasets[i].Rows {
					a.tb.Errorf("%s in %s: %d rows, but the count is %d", h, d.Name, n, counts.Datasets[i].Rows)
				}
			}
		})
	}
	for name := range all {
		slices.Sort(all[name])
	}
	return all
}

// Record asks everything, and closes the server: all versions, their datasets, their domains, and
// what each changed; all lists of URLs, with all pages for versions that have a tag and for the
// current one; takedowns, rejects and more by starter. Limits of pages are small, so that there are
// cursors. Searches are paths with parameters, asked of the current version.
func (a *Asker) Record(hosts, searches []string) *Answers {
	a.tb.Helper()
	out := &Answers{Hosts: hosts}
	record := func(path string, each func(*page)) {
		a.tb.Helper()
		a.pages(path, func(r Request, p *page) {
			out.Requests = append(out.Requests, r)
			if each != nil {
				each(p)
			}
		})
	}
	var versions []string
	full := map[string]bool{}
	record("/v1/versions?limit=4", func(p *page) {
		for _, v := range p.Versions {
			full[v.Version] = len(versions) == 0 || len(v.Tags) > 0
			versions = append(versions, v.Version)
		}
	})
	names := map[string]bool{}
	for i, v := range versions {
		record("/v1/datasets?version="+v, func(p *page) {
			for _, d := range p.Datasets {
				names[d.Name] = true
			}
		})
		if i > 0 {
			record("/v1/diff?from="+v+"&limit=40&to="+versions[i-1], nil)
		}
		for _, h := range hosts {
			record("/v1/domain/"+url.PathEscape(h)+"?version="+v, func(p *page) {
				for _, d := range p.Datasets {
					path := fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=25&version=%s", url.PathEscape(h), d.ID, v)
					out.Lists = append(out.Lists, a.List(path))
					if full[v] {
						record(path, nil)
					}
				}
			})
		}
	}
	record("/v1/diff?from="+versions[len(versions)-1]+"&limit=40&to="+versions[0], nil)
	for _, path := range searches {
		record(path+"&version="+versions[0], nil)
	}
	commands := [][]string{
		{"versions"}, {"datasets"}, {"tag"}, {"diff", versions[len(versions)-1], versions[0]}, {"takedown", "list", "--all"}, {"rules"},
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		commands = append(commands, []string{"rejects", "--dataset", name})
	}
	for _, id := range a.takedowns() {
		commands = append(commands, []string{"takedown", "status", id})
	}
	for _, v := range versions {
		commands = append(commands, []string{"versions", "--parts", "--version-id", v})
	}
	a.Close() // its lease is not of the lake
	for _, args := range commands {
		out.Commands = append(out.Commands, a.Starter(args...))
	}
	return out
}

// takedowns returns the ids of all takedowns.
func (a *Asker) takedowns() (ids []string) {
	a.tb.Helper()
	var docs [][]struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(a.Starter("takedown", "list", "--all").Out, &docs); err != nil {
		a.tb.Fatal(err)
	}
	for _, d := range docs {
		for _, t := range d {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// Differences asks everything again, closes the server, and returns what is different, at most most
// lines.
func (a *Asker) Differences(want *Answers, most int) (lines []string) {
	a.tb.Helper()
	add := func(what, diff string) {
		if diff != "" && len(lines) < most {
			lines = append(lines, what+": "+diff)
		}
	}
	for _, r := range want.Requests {
		got := a.Get(r.Path)
		if got.Status != r.Status {
			add(r.Path, fmt.Sprintf("status %d, want %d: %s", got.Status, r.Status, got.Body))
			continue
		}
		add(r.Path, Missing(r.Body, got.Body))
	}
	for _, l := range want.Lists {
		if got := a.List(l.Path); got != l {
			add(l.Path, fmt.Sprintf("%d rows with the hash %s, want %d with %s", got.Rows, got.SHA256, l.Rows, l.SHA256))
		}
	}
	a.Close()
	for _, c := range want.Commands {
		got := a.Starter(c.Args...)
		if got.Code != c.Code {
			add("starter "+strings.Join(c.Args, " "), fmt.Sprintf("exit %d, want %d", got.Code, c.Code))
		}
		add("starter "+strings.Join(c.Args, " "), Missing(c.Out, got.Out))
	}
	return lines
}

// Missing returns what of a JSON document another one lacks or has otherwise, "" for nothing. The
// other document may have members that the first one has not: that is how answers may change.
func Missing(want, got []byte) string {
	var w, g any
	for _, d := range []struct {
		data []byte
		into *any
	}{{want, &w}, {got, &g}} {
		dec := json.NewDecoder(bytes.NewReader(d.data))
		dec.UseNumber()
		if err := dec.Decode(d.into); err != nil {
			return err.Error()
		}
	}
	return missing("", w, g)
}

func missing(at string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", at, got)
		}
		for name, value := range w {
			have, ok := g[name]
			if !ok {
				return fmt.Sprintf("%s.%s is missing", at, name)
			}
			if diff := missing(at+"."+name, value, have); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s is %v, want %d values", at, got, len(w))
		}
		for i := range w {
			if diff := missing(at+"["+strconv.Itoa(i)+"]", w[i], g[i]); diff != "" {
				return diff
			}
		}
		return ""
	}
	if want != got {
		return fmt.Sprintf("%s is %v, want %v", at, got, want)
	}
	return ""
}
