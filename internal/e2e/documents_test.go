package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/urlake/urlake/internal/testenv"
)

// The tests of this file run the commands of README.md and docs/operation.md as they are there, in
// order, as a new user would: in a copy of the files that are checked in, with an empty home. The
// language of a fenced block says what it holds:
//
//	sh       commands; one that ends in & keeps running
//	console  commands after "$ ", each followed by its output; … stands for what is left out
//	text, json, sql   no commands

// skippedCommands are the commands that are not run here, by their beginnings.
var skippedCommands = []struct{ prefix, reason string }{
	{"make test", "this test is part of it"},
	{"make demo-crawl", "needs a minute and Redis; frontier/example crawls the same sites in its test, and other tests here seed and ingest"},
	{"docker compose", "needs a container engine; TestComposeFileAgreesWithThePrograms compares the file with the programs"},
	{"tctl ", "Temporal's deprecated command line is not among the tools"},
}

// rewrite is a change to commands before they are run. All of them are about free ports: Temporal's
// dev server and curl have no variable for the port. URLAKE_LISTEN sets the port of serve, and
// DEMO_ARGS makes the demo use free ports and end.
type rewrite struct{ from, to string }

// newUser runs the commands of documents.
type newUser struct {
	urlake
	home     string
	rewrites []rewrite
	seen     map[string]bool // prefixes of skippedCommands and rewrites that were found
	workers  []*exec.Cmd
}

func TestDocumentedCommandsRunInAFreshCopy(t *testing.T) {
	t.Parallel()
	runDocuments(t, false)
}

// runDocuments runs all commands of the documents. With empty caches it downloads all modules and
// builds Temporal.
func runDocuments(t *testing.T, emptyCaches bool) {
	for _, name := range []string{"bash", "make", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			testenv.Missing(t, name)
		}
	}
	store := testenv.NewS3Server(t)
	u := addUser(t, store, emptyCaches)
	store.NewBucket(t, "bucket")
	store.NewBucket(t, "raw")
	putRaw := newPutRaw(t, store)
	for _, folder := range []string{
		"crawl/2026-11-20", "crawl/2026-11-21", "crawl/2026-11-01", "crawl/2026-11-02", "crawl/2026-11-03", "crawl/latest", "lists",
	} {
		for _, name := range []string{"smallweb.txt.gz", "smallyt.txt"} {
			putRaw(folder+"/"+name, filepath.Join(testenv.Root(t), "testdata", "smallweb", name))
		}
	}
	ran := 0
	for _, doc := range []string{"README.md", "docs/operation.md"} {
		all := commands(t, doc)
		if doc == "README.md" {
			_, all = doorCommands(t) // TestReadmesDoorsRun runs the others
		}
		for _, c := range all {
			if u.runCommand(t, c) {
				ran++
			}
			if t.Failed() {
				t.Fatalf("stopped at %s", c.location)
			}
		}
	}
	t.Logf("%d commands ran", ran)
	for _, s := range skippedCommands {
		if !u.seen[s.prefix] {
			t.Errorf("no document has the command %q, so skippedCommands need not have it", s.prefix)
		}
	}
	for _, r := range u.rewrites {
		if !u.seen[r.from] {
			t.Errorf("no command has %q, so it need not be rewritten", r.from)
		}
	}
}

// addUser returns a user who has a copy of the files that are checked in, and an environment
// without any settings of the person who runs the test.
func addUser(t *testing.T, store *testenv.S3Server, emptyCaches bool) *newUser {
	t.Helper()
	u := &newUser{home: t.TempDir(), seen: map[string]bool{}}
	u.bin = copyOfSources(t)
	goValue := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	goEnv := func(name string) string { return name + "=" + goValue(name) }
	u.temporal = testenv.FreeAddress(t)
	listen := testenv.FreeAddress(t)
	u.base = "http://" + listen
	_, port, _ := net.SplitHostPort(u.temporal)
	u.env = append(store.Env(), "HOME="+u.home, "TMPDIR="+t.TempDir(),
		"PATH="+filepath.Join(u.bin, "bin")+":"+filepath.Join(goValue("GOROOT"), "bin")+":/usr/local/bin:/usr/bin:/bin",
		"TEMPORAL_ADDRESS="+u.temporal, "URLAKE_LISTEN="+listen, "DEMO_ARGS=--once",
		goEnv("GOPROXY"), goEnv("GOSUMDB"), goEnv("GONOSUMDB"), goEnv("GOPRIVATE"), goEnv("GOTOOLCHAIN"))
	// The proxies and certificates of this machine are not settings of the user.
	for _, name := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
	} {
		if v, ok := os.LookupEnv(name); ok {
			u.env = append(u.env, name+"="+v)
		}
	}
	if emptyCaches {
		// Modules are read-only by default, and the test could not remove them.
		u.env = append(u.env, "GOFLAGS=-modcacherw")
	} else {
		// Without -trimpath every package would be built anew for the folder of the copy.
		u.env = append(u.env, goEnv("GOMODCACHE"), goEnv("GOCACHE"), "GOFLAGS=-trimpath")
		built, err := programs()
		if err != nil {
			t.Fatal(err)
		}
		temporal := testenv.Program(t, "temporal")
		if err := os.Mkdir(filepath.Join(u.bin, "bin"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(temporal, filepath.Join(u.bin, "bin", "temporal")); err != nil {
			t.Fatal(err)
		}
		// What is built from the same commit is up to date, and make build links nothing again.
		for _, name := range builtPrograms {
			if err := linkOrCopy(filepath.Join(built, name), filepath.Join(u.bin, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.rewrites = []rewrite{
		{"temporal server start-dev", "temporal server start-dev --ip 127.0.0.1 --headless --log-level error --port " + port},
		{"localhost:8080", listen},
	}
	return u
}

// copyOfSources copies the files that are, or would be, checked in to a clone and returns its
// folder. The copies keep their times, so that make knows which file is newer.
func copyOfSources(t *testing.T) string {
	t.Helper()
	root, dir := testenv.Root(t), t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			testenv.Missing(t, "git and a checkout")
		}
		return string(out)
	}
	out := git("-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git("clone", "--quiet", "--shared", "--no-checkout", root, dir)
	for _, name := range strings.Split(strings.Trim(out, "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Stat(from)
		if errors.Is(err, os.ErrNotExist) {
			continue // the removal is not yet checked in
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o777)
		}
		if err == nil {
			err = os.WriteFile(to, data, info.Mode().Perm())
		}
		if err == nil {
			err = os.Chtimes(to, info.ModTime(), info.ModTime())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	git("-C", dir, "reset", "--quiet")
	return dir
}

// newPutRaw returns a function that stores a file in the bucket raw.
func newPutRaw(t *testing.T, store *testenv.S3Server) func(key, file string) {
	client := s3.New(s3.Options{
		BaseEndpoint: &store.Endpoint, Region: store.Region, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: store.AccessKey, SecretAccessKey: store.SecretKey}, nil
		}),
	})
	return func(key, file string) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err == nil {
			_, err = client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("raw"), Key: &key, Body: bytes.NewReader(data),
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// command is one command of a document.
type command struct {
	location string // document and line
	line     int
	text     string
	// output is what the document shows of the command's output, if shown is true.
	output string
	shown  bool
}

// commands returns the commands in the blocks of a document, in order. Continued lines and loops
// are one command.
func commands(t *testing.T, doc string) []command {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), doc))
	if err != nil {
		t.Fatal(err)
	}
	var found []command
	lang := ""
	var last *command
	for i, line := range strings.Split(string(data), "\n") {
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			if lang != "" {
				lang, last = "", nil
				continue
			}
			if lang = fence; !slices.Contains([]string{"sh", "console", "text", "json", "sql", "go"}, lang) {
				t.Errorf("%s:%d: a block has the unknown language %q; use sh or console for commands, else text", doc, i+1, lang)
				lang = "text"
			}
			continue
		}
		location := fmt.Sprintf("%s:%d", doc, i+1)
		switch lang {
		case "sh":
			inLoop := last != nil && strings.HasPrefix(last.text, "for ") && !strings.HasSuffix(last.text, "\ndone")
			if inLoop || last != nil && strings.HasSuffix(last.text, "\\") {
				last.text += "\n" + line
			} else if strings.TrimSpace(line) != "" {
				found = append(found, command{location: location, line: i + 1, text: line})
				last = &found[len(found)-1]
			}
		case "console":
			if text, ok := strings.CutPrefix(line, "$ "); ok {
				found = append(found, command{location: location, line: i + 1, text: text, shown: true})
				last = &found[len(found)-1]
			} else if last == nil {
				t.Errorf("%s: output without a command", location)
			} else {
				last.output += line + "\n"
			}
		}
	}
	return found
}

// runCommand runs a command and compares its output with the document. It returns false if the
// command is one of skippedCommands.
func (u *newUser) runCommand(t *testing.T, c command) bool {
	t.Helper()
	for _, s := range skippedCommands {
		if strings.HasPrefix(c.text, s.prefix) {
			u.seen[s.prefix] = true
			return false
		}
	}
	text := c.text
	for _, r := range u.rewrites {
		if strings.Contains(text, r.from) {
			u.seen[r.from] = true
			text = strings.ReplaceAll(text, r.from, r.to)
		}
	}
	if program, ok := cutBackground(text); ok {
		p := u.run(t, c.text, "bash", "-c", "cd "+u.bin+" && exec "+program)
		if strings.Contains(program, "worker") {
			u.workers = append(u.workers, p)
		}
		if strings.Contains(program, "temporal server") {
			u.awaitTemporal(t) // starter gives up after some seconds
		}
		return true
	}
	if strings.HasPrefix(text, "temporal workflow cancel") {
		// Only a running workflow can be cancelled, so the workers are stopped until it is.
		u.signalWorkers(t, syscall.SIGSTOP)
		defer u.signalWorkers(t, syscall.SIGCONT)
		u.shell(t, command{location: c.location, text: "temporal workflow start --task-queue 'control@s3://bucket/lake' " +
			"--type IngestWorkflow --workflow-id 'ingest:crawl:2026-11-21@s3://bucket/lake' " +
			`--input '{"lake":"s3://bucket/lake","dataset":"crawl","batch":"2026-11-21","inputs":["s3://raw/crawl/2026-11-21/"]}'`})
	}
	if strings.HasPrefix(text, "curl") {
		until(t, "the server has a version", func(ctx context.Context) error {
			return exec.CommandContext(ctx, "curl", "-fs", u.base+"/readyz").Run()
		})
	}
	c.text = text
	u.shell(t, c)
	return true
}

// commandLimit is far longer than any command of the documents takes, even one that downloads all
// modules. A program that keeps running needs an & in the document.
const commandLimit = 10 * time.Minute

// shell runs a command until it exits, and compares its output with what the document shows.
func (u *newUser) shell(t *testing.T, c command) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), commandLimit)
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", c.text)
	cmd.Dir, cmd.Env, cmd.WaitDelay = u.bin, u.env, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if strings.HasPrefix(c.text, "curl") {
		cmd.Stderr = &errs // curl prints its progress there if it is not on a terminal
	}
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %s\n%v\n%s%s", c.location, c.text, errors.Join(err, ctx.Err()), &out, &errs)
		return
	}
	if c.shown {
		if problem := compareOutput(c.output, out.String()); problem != "" {
			t.Errorf("%s: %s\n%s\nThe output was:\n%s", c.location, c.text, problem, &out)
		}
	}
}

// cutBackground returns a command without its & and without the comment behind it. It returns false
// if the command has no &.
func cutBackground(text string) (before string, ok bool) {
	before, _, _ = strings.Cut(text, " #")
	return strings.CutSuffix(strings.TrimSpace(before), "&")
}

// signalWorkers sends a signal to all workers that were started.
func (u *newUser) signalWorkers(t *testing.T, s syscall.Signal) {
	t.Helper()
	if len(u.workers) == 0 {
		t.Fatal("no worker was started")
	}
	for _, w := range u.workers {
		if err := w.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// varying are texts that differ from run to run, and what replaces them.
var varying = []struct {
	re *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}`), "VERSION"},
	{regexp.MustCompile(`\bafter [0-9.]+(ms|s)(, [0-9,]+ records a second)?`), "after TIME"},
	{regexp.MustCompile(`\b(127\.0\.0\.1|localhost):\d+`), "ADDRESS"},
	// A hash of the inputs' names, sizes and times.
	{regexp.MustCompile(`\bbatch [0-9a-f]{16}\b`), "batch HASH"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// sizes are compared roughly, so that better compression need not change the documents.
var sizes = regexp.MustCompile(`\b\d+(\.\d+)? (B|KiB|MiB|GiB|bytes a row)`)

// closeSizes reports whether two sizes differ by at most a fifth.
func closeSizes(a, b string) bool {
	value := func(s string) float64 {
		number, unit, _ := strings.Cut(s, " ")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return -1
		}
		switch unit {
		case "KiB":
			v *= 1 << 10
		case "MiB":
			v *= 1 << 20
		case "GiB":
			v *= 1 << 30
		}
		return v
	}
	x, y := value(a), value(b)
	return x <= 1.2*y && y <= 1.2*x
}

// compareOutput compares output with what a document shows of it. It returns what differs, or "". A
// line … stands for any lines, and … in a line for any text.
func compareOutput(shown, printed string) string {
	lines := func(s string) []string {
		for _, v := range varying {
			s = v.re.ReplaceAllString(s, v.as)
		}
		return strings.Split(strings.TrimRight(s, "\n"), "\n")
	}
	want, got := lines(shown), lines(printed)
	at, skip := 0, false
	for i, w := range want {
		if w == "…" {
			skip = true
			continue
		}
		// After … the first line that matches is taken, without trying later ones. The next lines,
		// up to the next …, have to follow it immediately.
		from := at
		for at < len(got) && !matchLine(w, got[at]) && skip {
			at++
		}
		if at == len(got) || !matchLine(w, got[at]) {
			return fmt.Sprintf("Line %d of the document does not follow line %d of the output: %s", i+1, from, w)
		}
		at++
		skip = false
	}
	if at < len(got) && !skip {
		return fmt.Sprintf("The output has more lines than the document: %s", got[at])
	}
	return ""
}

// matchLine reports whether a line of output is what a line of a document shows.
func matchLine(want, got string) bool {
	ws, gs := sizes.FindAllString(want, -1), sizes.FindAllString(got, -1)
	want, got = sizes.ReplaceAllString(want, "SIZE"), sizes.ReplaceAllString(got, "SIZE")
	parts := strings.Split(want, "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	if !regexp.MustCompile(`^`+strings.Join(parts, `.*`)+`$`).MatchString(got) || len(ws) > len(gs) {
		return false
	}
	for i := range ws {
		if !closeSizes(ws[i], gs[i]) {
			return false
		}
	}
	return true
}

func TestShownOutputIsComparedClosely(t *testing.T) {
	const printed = "building\nDataset d (id 1), batch 0123456789abcdef\n  kept  767 rows\n  written  17.8 KiB of Parquet\n" +
		"In version 20261120T152034.368Z-439d12e8 after 600ms\n{\"a\":1,\"b\":[2,3]}\n"
	for _, shown := range []string{
		printed,
		"…\n",
		"…\n  kept 767 rows\n…\n",
		"building\n…\n  written 16.0 KiB of Parquet\n…\n",
		"…\nIn version 20260101T000000.000Z-00000000 after 2.1s\n{\"a\":1,…\n",
		"…\nDataset d (id 1), batch fedcba9876543210\n…\n{\"a\":…3]}\n",
	} {
		if problem := compareOutput(shown, printed); problem != "" {
			t.Errorf("%q: %s", shown, problem)
		}
	}
	for _, shown := range []string{
		"",
		"building\n",
		"Dataset d (id 1), batch 0123456789abcdef\n…\n",
		"…\n  kept 768 rows\n…\n",
		"…\n  written 27.8 KiB of Parquet\n…\n",
		"…\nbuilding\nbuilding\n…\n",
		"building\n  kept 767 rows\n…\n",
		"…\n  written 17.8 KiB of Parquet\n  kept 767 rows\n…\n",
		"…\n{\"a\":2,…\n",
	} {
		if compareOutput(shown, printed) == "" {
			t.Errorf("no difference was found to %q", shown)
		}
	}
}

// TestDocumentedTestsExist checks that each go test of the documents names tests or benchmarks that
// its packages have; xxx is what no test is named.
func TestDocumentedTestsExist(t *testing.T) {
	t.Parallel()
	root := testenv.Root(t)
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("go test ([^`|&]*)")
	chosen := regexp.MustCompile(`-(run|bench)[ =]'?([^' ]+)`)
	folder := regexp.MustCompile(`\./[a-z0-9/.]+`)
	module := regexp.MustCompile(`-C ([a-z]+)`) // the folder that others are in
	named := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example)\w*)\(`)
	seen := 0
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range testBlocks(string(text)) {
			for _, m := range command.FindAllStringSubmatch(block, -1) {
				var names []string
				in := root
				if of := module.FindStringSubmatch(m[1]); of != nil {
					in = filepath.Join(root, of[1])
				}
				for _, f := range folder.FindAllString(m[1], -1) {
					if strings.HasSuffix(f, "...") {
						continue
					}
					files, err := filepath.Glob(filepath.Join(in, f, "*_test.go"))
					if err != nil || len(files) == 0 {
						t.Errorf("%s: go test %s: %s has no tests: %v", filepath.Base(doc), m[1], f, err)
					}
					for _, file := range files {
						source, err := os.ReadFile(file)
						if err != nil {
							t.Fatal(err)
						}
						for _, n := range named.FindAllStringSubmatch(string(source), -1) {
							names = append(names, n[1])
						}
					}
				}
				for _, c := range chosen.FindAllStringSubmatch(m[1], -1) {
					first, _, _ := strings.Cut(c[2], "/") // what follows is a part of a test
					if first == "xxx" || len(names) == 0 {
						continue
					}
					which, err := regexp.Compile(first)
					if err != nil || !slices.ContainsFunc(names, which.MatchString) {
						t.Errorf("%s: go test %s: no test matches %q", filepath.Base(doc), m[1], first)
					}
					seen++
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d tests are named; did the form of the documents change?", seen)
	}
}

// testBlocks are the lines of fenced blocks, and the paragraphs outside of them as one line each.
func testBlocks(text string) (blocks []string) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			blocks = append(blocks, strings.Split(part, "\n")...)
			continue
		}
		for _, paragraph := range strings.Split(part, "\n\n") {
			blocks = append(blocks, strings.ReplaceAll(paragraph, "\n", " "))
		}
	}
	return blocks
}

// TestDocumentedFlagsExist checks the flags of every command in the documents, also of those that
// are not run, against the help of the programs.
func TestDocumentedFlagsExist(t *testing.T) {
	t.Parallel()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	helps := map[string][]byte{} // the outputs of commands
	seen := 0
	for _, doc := range []string{
		"README.md", "docs/first-minutes.md", "docs/engines.md", "docs/operation.md", "docs/sources.md", "docs/api.md",
	} {
		for _, line := range mentions(t, doc) {
			fields := strings.Fields(strings.TrimPrefix(line, "bin/"))
			var help *exec.Cmd
			switch fields[0] {
			case "temporal":
				args := []string{}
				for _, f := range fields[1:] {
					if strings.HasPrefix(f, "-") {
						break
					}
					args = append(args, f)
				}
				help = exec.Command(testenv.Program(t, "temporal"), append(args, "--help")...)
			case "starter", "urlake":
				help = exec.Command(filepath.Join(bin, fields[0]), fields[1], "--help")
				if slices.Contains([]string{"export", "inventory", "rules", "schedule", "takedown", "token", "tree"}, fields[1]) { // which have verbs of their own
					verbs := []string{}
					for _, f := range fields[1:] {
						if strings.HasPrefix(f, "-") {
							break
						}
						verbs = append(verbs, f)
					}
					help = exec.Command(filepath.Join(bin, "starter"), append(verbs, "--help")...)
				}
			default:
				help = exec.Command(filepath.Join(bin, fields[0]), "--help")
			}
			asked := strings.Join(help.Args, " ")
			out, known := helps[asked]
			if !known {
				if out, err = help.CombinedOutput(); err != nil {
					t.Errorf("%s: %s: %v", doc, line, err)
					continue
				}
				helps[asked] = out
			}
			for _, f := range flag.FindAllString(line, -1) {
				if !bytes.Contains(out, []byte(f+" ")) && !bytes.Contains(out, []byte(f+"\n")) {
					t.Errorf("%s: %s: its help does not know %s", doc, line, f)
				}
			}
			seen++
		}
	}
	if seen < 30 {
		t.Errorf("only %d commands were found; did the form of the documents change?", seen)
	}
}

// mentions returns the commands of urlake and of temporal in a document: in its text, between
// backquotes, and in its blocks.
func mentions(t *testing.T, doc string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), doc))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	command := regexp.MustCompile("(?m)(?:`|^\\$? *|^  )(?:bin/)?((?:starter|urlake|worker|serve|temporal) +(?:[a-z]|--)[^`#\n]*)")
	joined := strings.ReplaceAll(string(data), "\\\n", " ")
	for _, m := range command.FindAllStringSubmatch(joined, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestReadmeInputIsRun checks that the input for the UI, which no test can type there, is that of a
// command, which TestDocumentedCommandsRunInAFreshCopy runs.
func TestReadmeInputIsRun(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "```json\n")
	input, rest, _ := strings.Cut(rest, "\n```")
	if !ok || !strings.Contains(rest, "--type IngestWorkflow") || !strings.Contains(rest, "--input '"+input+"'") {
		t.Errorf("no command of the README starts a workflow with the input %s", input)
	}
}

// TestReadmeNumbersAreMeasured checks that each number in the README's paragraph on performance is
// also in docs/performance.md.
func TestReadmeNumbersAreMeasured(t *testing.T) {
	root := testenv.Root(t)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	performance, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, paragraph := range strings.Split(string(readme), "\n\n") {
		if !strings.Contains(paragraph, "(docs/performance.md)") || strings.HasPrefix(paragraph, "*") {
			continue
		}
		for _, n := range regexp.MustCompile(`\d[\d,.]*\d|\d`).FindAllString(paragraph, -1) {
			seen++
			if !regexp.MustCompile(`(^|[^\d,.])` + regexp.QuoteMeta(n) + `($|[^\d])`).Match(performance) {
				t.Errorf("docs/performance.md lacks %s, which the README has: %s", n, paragraph)
			}
		}
	}
	if seen < 4 {
		t.Errorf("only %d numbers were found; did the form of the README change?", seen)
	}
}
