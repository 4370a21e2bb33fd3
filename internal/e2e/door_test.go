package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// door is a person who uses urlake on this machine, with an empty home.
type door struct {
	program string
	dir     string // the working folder; the lake is lake in it
	env     []string
}

func newDoor(t *testing.T) *door {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	d := &door{program: filepath.Join(bin, "urlake"), dir: t.TempDir()}
	temporal := filepath.Dir(testenv.Program(t, "temporal"))
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TEMPORAL_") && !strings.HasPrefix(kv, "URLAKE_") && !strings.HasPrefix(kv, "XDG_") {
			d.env = append(d.env, kv)
		}
	}
	d.env = append(d.env, "HOME="+home, "TMPDIR="+t.TempDir(), "PATH="+temporal+":"+os.Getenv("PATH"))
	return d
}

// do runs urlake to its end and returns its output and its exit code.
func (d *door) do(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(d.program, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs urlake, which has to succeed, and returns its output.
func (d *door) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := d.do(t, args...)
	if code != 0 {
		t.Fatalf("urlake %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// runningUp is an urlake up.
type runningUp struct {
	*door
	cmd  *exec.Cmd
	out  *syncBuffer
	page string
}

var (
	pageLine     = regexp.MustCompile(`(?m)^urlake   \| page +(http://\S+/)$`)
	temporalLine = regexp.MustCompile(`(?m)^urlake   \| Temporal +(127\.0\.0\.1:\d+), with pages at http://(\S+)/$`)
	readyLine    = regexp.MustCompile(`(?m)^urlake   \| ready `)
)

// up starts urlake up and waits until it is ready.
func (d *door) up(t *testing.T, lake string) *runningUp {
	t.Helper()
	u := &runningUp{door: d, cmd: exec.Command(d.program, "up", lake, "--listen", "127.0.0.1:0"), out: &syncBuffer{}}
	u.cmd.Dir, u.cmd.Env, u.cmd.Stdout, u.cmd.Stderr = d.dir, d.env, u.out, u.out
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if u.cmd.ProcessState == nil {
			u.cmd.Process.Kill()
			u.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("urlake up printed:\n%s", u.out)
		}
	})
	until(t, "up is ready", func(context.Context) error {
		if !readyLine.MatchString(u.out.String()) {
			return errors.New(u.out.String())
		}
		return nil
	})
	u.page = pageLine.FindStringSubmatch(u.out.String())[1]
	return u
}

// children returns the processes that a process started, by the name of what they run.
func children(t *testing.T, parent int) map[string]int {
	t.Helper()
	found := map[string]int{}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(all) == 0 {
		t.Fatal("no processes in /proc")
	}
	for _, name := range all {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …, and the name may have blanks and brackets.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if fields[1] != strconv.Itoa(parent) || fields[0] == "Z" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		args := strings.Split(string(line), "\x00")
		kind := args[1]
		if kind == "server" {
			kind = "temporal"
		}
		found[kind] = pid
	}
	return found
}

// alive reports whether a process runs.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))[0] != "Z"
}

// gone waits until processes have ended and nobody listens on the addresses.
func gone(t *testing.T, pids map[string]int, addresses ...string) {
	t.Helper()
	until(t, "all programs have ended", func(context.Context) error {
		for name, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("%s runs as process %d", name, pid)
			}
		}
		for _, a := range addresses {
			if c, err := net.Dial("tcp", a); err == nil {
				c.Close()
				return fmt.Errorf("something listens on %s", a)
			}
		}
		return nil
	})
}

// addresses returns where an up listens.
func (u *runningUp) addresses() []string {
	m := temporalLine.FindStringSubmatch(u.out.String())
	return []string{m[1], m[2], strings.TrimSuffix(strings.TrimPrefix(u.page, "http://"), "/")}
}

// writeList writes a list of URLs below the working folder.
func (d *door) writeList(t *testing.T, name string, urls ...string) {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(urls, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestUpOutlivesItsPrograms kills each program of a running lake. It is started again, and then
// everything works. Ctrl-C leaves nothing behind, and neither does the death of urlake itself.
func TestUpOutlivesItsPrograms(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.writeList(t, "first.txt", "http://www.example.com/a", "http://example.org/")
	u := d.up(t, "lake")
	before := children(t, u.cmd.Process.Pid)
	for _, name := range []string{"temporal", "worker", "serve"} {
		pid, ok := before[name]
		if !ok {
			t.Fatalf("no %s runs: %v", name, before)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, name+" runs again", func(context.Context) error {
			if now := children(t, u.cmd.Process.Pid)[name]; now == 0 || now == pid {
				return errors.New("it does not")
			}
			return nil
		})
		if want := "urlake   | " + name + " ended (signal: killed); it is started again in "; !strings.Contains(u.out.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if _, errs, code := d.do(t, "up", "lake"); code != 1 || !strings.Contains(errs, "runs already") || !strings.Contains(errs, u.page) {
		t.Errorf("a second up: exit %d, %s", code, errs)
	}
	taken := strings.TrimSuffix(strings.TrimPrefix(u.page, "http://"), "/")
	if _, errs, code := d.do(t, "up", "lake", "--listen", taken); code != 1 || !strings.Contains(errs, "runs already") {
		t.Errorf("a second up at the same address: exit %d, %s", code, errs)
	}
	// The lake is found by any of its spellings, and what up runs is used.
	out := d.must(t, "add", "file://"+filepath.Join(d.dir, "lake"), "first.txt")
	if !strings.Contains(out, "kept                 2 rows of 2 domains") || !strings.Contains(out, u.page+"?domain=") {
		t.Errorf("add printed\n%s", out)
	}
	until(t, "the server answers for what was added", func(ctx context.Context) error {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, u.page+"v1/domain/example.org", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var answer struct {
			Total int `json:"total_datasets"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return err
		}
		if answer.Total != 1 {
			return errors.New(resp.Status)
		}
		return nil
	})
	if out := d.must(t, "status", "--lake", "lake"); !strings.Contains(out, "2 rows of 1 dataset") {
		t.Errorf("status printed\n%s", out)
	}

	if n := strings.Count(u.out.String(), " ended ("); n != len(before) {
		t.Errorf("programs ended %d times, want %d", n, len(before))
	}

	// Ctrl-C.
	var pids map[string]int
	until(t, "all three programs run", func(context.Context) error {
		if pids = children(t, u.cmd.Process.Pid); len(pids) != 3 {
			return fmt.Errorf("only %v do", pids)
		}
		return nil
	})
	addresses := u.addresses()
	if err := u.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	gone(t, pids, addresses...)

	// The end of urlake by kill -9. What it ran is found by nobody any more.
	u = d.up(t, "lake")
	pids, addresses = children(t, u.cmd.Process.Pid), u.addresses()
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.cmd.Wait()
	gone(t, pids, addresses...)
	d.writeList(t, "second.txt", "http://www.example.com/b")
	out = d.must(t, "add", "lake", "second.txt")
	if !strings.Contains(out, "kept                 1 row of 1 domain\n") || !strings.Contains(out, "urlake up lake") {
		t.Errorf("add printed\n%s", out)
	}
	if out := d.must(t, "find", "lake", "example.com"); !strings.Contains(out, "first") || !strings.Contains(out, "second") {
		t.Errorf("find printed\n%s", out)
	}

	// A closed terminal.
	u = d.up(t, "lake")
	pids, addresses = children(t, u.cmd.Process.Pid), u.addresses()
	if err := u.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("after SIGHUP: %v", err)
	}
	gone(t, pids, addresses...)
}

// TestTwoLakesAreUpAtOnce holds that lakes do not stand in each other's way, and that add waits for
// another add of its lake.
func TestTwoLakesAreUpAtOnce(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	one, two := d.up(t, "one"), d.up(t, "two")
	if one.page == two.page {
		t.Errorf("both lakes are at %s", one.page)
	}
	d.writeList(t, "a.txt", "http://a.example/")
	d.writeList(t, "b.txt", "http://b.example/")
	for lake, list := range map[string]string{"one": "a.txt", "two": "b.txt"} {
		d.must(t, "add", lake, list)
	}
	if out := d.must(t, "find", "one", "a.example", "b.example"); !regexp.MustCompile(`(?s)a\.example +a +1\n.*b\.example +\(none\)`).MatchString(out) {
		t.Errorf("find printed\n%s", out)
	}
	// Two at once, without an up: the second waits for the first.
	done := make(chan string)
	for _, list := range []string{"a.txt", "b.txt"} {
		go func() {
			_, errs, code := d.do(t, "add", "three", list)
			done <- fmt.Sprintf("exit %d\n%s", code, errs)
		}()
	}
	for range 2 {
		if got := <-done; !strings.HasPrefix(got, "exit 0\n") {
			t.Error(got)
		}
	}
	d.must(t, "find", "three", "a.example", "b.example")
}

func TestAddCancelledPublishesNothing(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	// A named pipe is an input that does not end, if it is opened at all; a large list is one that
	// takes a while.
	var urls []string
	for i := range 200_000 {
		urls = append(urls, fmt.Sprintf("http://host%d.example/%d", i%5000, i))
	}
	d.writeList(t, "large.txt", urls...)
	cmd := exec.Command(d.program, "add", "lake", "large.txt")
	var out syncBuffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids map[string]int
	until(t, "the ingest has begun", func(context.Context) error {
		if found, _ := filepath.Glob(filepath.Join(d.dir, "lake", "registry", "*")); len(found) == 0 {
			return errors.New("there is no registry")
		}
		pids = children(t, cmd.Process.Pid)
		return nil
	})
	cmd.Process.Signal(syscall.SIGINT)
	err := cmd.Wait()
	gone(t, pids)
	if err == nil && strings.Contains(out.String(), "In version") {
		t.Skip("the ingest ended before it was cancelled")
	}
	if err == nil || !strings.Contains(out.String(), "stopped") {
		t.Errorf("%v\n%s", err, out.String())
	}
	// The same command works afterwards.
	if out := d.must(t, "add", "lake", "large.txt"); !strings.Contains(out, "200,000 rows of 5,000 domains") {
		t.Errorf("add printed\n%s", out)
	}
}

// TestAddNamesDatasetsAndReplacesInputs adds inputs of several names, again after one has changed,
// and together as one dataset.
func TestAddNamesDatasetsAndReplacesInputs(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.writeList(t, "in/Seeds 2024.csv", "url", "http://a.example/1", "http://a.example/2")
	d.writeList(t, "in/crawl.cdx.txt", "http://a.example/3")
	d.writeList(t, "other/seeds-2024.txt", "http://a.example/4")
	d.up(t, "lake") // so that each add needs no Temporal of its own
	out := d.must(t, "add", "lake", "in/Seeds 2024.csv", "in/crawl.cdx.txt")
	for _, want := range []string{"Dataset Seeds-2024 (id 1)", "Dataset crawl.cdx (id 2)"} {
		if !strings.Contains(out, want) {
			t.Errorf("add did not print %q:\n%s", want, out)
		}
	}
	d.writeList(t, "in/Seeds 2024.csv", "url", "http://a.example/1", "http://a.example/2", "http://a.example/9")
	d.must(t, "add", "lake", "in/Seeds 2024.csv")
	d.must(t, "add", "lake", "--dataset", "crawl.cdx", "other/seeds-2024.txt")
	var answers []struct {
		Asked    string `json:"asked"`
		Datasets []struct {
			Name string `json:"name"`
			Rows int64  `json:"rows"`
		} `json:"datasets"`
	}
	if err := json.Unmarshal([]byte(d.must(t, "find", "lake", "a.example", "--json")), &answers); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, s := range answers[0].Datasets {
		got[s.Name] = s.Rows
	}
	if fmt.Sprint(got) != "map[Seeds-2024:3 crawl.cdx:2]" {
		t.Errorf("the lake holds %v", got)
	}
	for args, want := range map[string]string{
		"add":      "which lake?",
		"add lake": "what to add?",
		"add lake in/crawl.cdx.txt other/crawl.cdx.csv": "would both be dataset crawl.cdx",
		"add no/such/lake in":                           "parent folder is missing",
		"add lake in --datset x":                        "did you mean --dataset?",
		"ad lake in":                                    `did you mean "add"?`,
		"up lake in":                                    "urlake add lake in",
		"up no/such/lake":                               "parent folder is missing",
		"up in/crawl.cdx.txt":                           "is a file; name a folder",
		"add in/crawl.cdx.txt in":                       "is a file; name a folder",
		"find":                                          "which lake?",
		"find lake":                                     "which domain?",
		"find lake a.example --csv --json":              "choose one",
		"find lake a.example --limit -1":                "--limit is -1",
		"ingest --lake lake --dataset x --url-col":      "did you mean",
	} {
		if _, errs, code := d.do(t, strings.Fields(args)...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("urlake %s: exit %d, want %q in\n%s", args, code, want, errs)
		}
	}
	// Without Temporal nothing runs, and the message says how to get it.
	env := d.env
	defer func() { d.env = env }()
	d.env = append(slices.Clone(env), "PATH=/nowhere")
	for _, args := range [][]string{{"add", "new", "in"}, {"up", "new"}} {
		if _, errs, code := d.do(t, args...); code != 1 || !strings.Contains(errs, "https://docs.temporal.io/cli") {
			t.Errorf("without Temporal: exit %d\n%s", code, errs)
		}
	}
}

// TestFind compares answers with a count of the lists by hand.
func TestFind(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	want := map[string]map[string]int{} // by domain and dataset
	const domains = 6000
	for _, dataset := range []string{"one", "two", "three"} {
		var urls []string
		for i := range domains {
			domain := fmt.Sprintf("site%d.example", i)
			n := (i * (len(dataset) + 1)) % 4
			for k := range n {
				urls = append(urls, fmt.Sprintf("http://www.%s/%d", domain, k))
			}
			if n > 0 {
				if want[domain] == nil {
					want[domain] = map[string]int{}
				}
				want[domain][dataset] = n
			}
		}
		d.writeList(t, dataset+".txt", append(urls, "http://me.github.io/")...)
	}
	d.must(t, "add", "lake", "one.txt", "two.txt", "three.txt")

	var list []string
	for i := domains + 10; i >= 0; i-- {
		switch i % 3 {
		case 0:
			list = append(list, fmt.Sprintf("site%d.example", i))
		case 1:
			list = append(list, fmt.Sprintf("https://sub.site%d.example/x?y", i))
		default:
			list = append(list, fmt.Sprintf("  WWW.Site%d.Example.\r", i))
		}
	}
	d.writeList(t, "list.txt", append([]string{"\ufeff# a comment", ""}, list...)...)
	out := d.must(t, "find", "lake", "--file", "list.txt", "--csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) < domains {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	at := 1
	for _, asked := range list {
		asked = strings.TrimSpace(asked)
		domain := regexp.MustCompile(`site\d+\.example`).FindString(strings.ToLower(asked))
		held := 0
		for ; at < len(rows) && rows[at][0] == asked; at++ {
			if rows[at][1] != domain {
				t.Fatalf("%s was answered for %s", asked, rows[at][1])
			}
			if rows[at][3] == "" {
				continue // none
			}
			if n, _ := strconv.Atoi(rows[at][4]); n != want[domain][rows[at][3]] {
				t.Errorf("%v, want %v", rows[at], want[domain])
			}
			held++
		}
		if held != len(want[domain]) {
			t.Fatalf("%s: %d datasets, want %v", asked, held, want[domain])
		}
	}
	if at != len(rows) {
		t.Errorf("%d rows are left: %v", len(rows)-at, rows[at])
	}

	out, errs, code := d.do(t, "find", "lake", "github.io", "me.github.io", "co.uk", "192.0.2.1", "a.example,b.example", "site1.example")
	if code != 1 {
		t.Errorf("a question that is no domain: exit %d", code)
	}
	for _, want := range []string{"github.io is a public suffix", "co.uk is a public suffix", "a.example,b.example: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	if strings.Contains(errs, "192.0.2.1") {
		t.Errorf("an address is no public suffix:\n%s", errs)
	}
	if !regexp.MustCompile(`(?m)^me\.github\.io +me\.github\.io +one +1$`).MatchString(out) ||
		!regexp.MustCompile(`(?m)^github\.io +github\.io +\(none\) *$`).MatchString(out) {
		t.Errorf("find printed\n%s", out)
	}

	out, errs, _ = d.do(t, "find", "lake", "site3.example", "--urls", "one", "--limit", "1")
	if out != "http://www.site3.example/0\n" && want["site3.example"]["one"] > 0 {
		t.Errorf("find --urls printed %q, %q", out, errs)
	}
	if out, errs, code := d.do(t, "find", "lake", "site3.example", "--urls", "thre"); code != 1 || out != "" ||
		!strings.Contains(errs, `no dataset "thre"`) || !strings.Contains(errs, `did you mean "three"?`) {
		t.Errorf("find --urls of no dataset: exit %d, %q, %q", code, out, errs)
	}
	in := exec.Command(d.program, "find", "lake", "--file", "-", "--json")
	in.Dir, in.Env, in.Stdin = d.dir, d.env, bufio.NewReader(strings.NewReader("site1.example\nnowhere.example\n"))
	data, err := in.Output()
	var parsed []map[string]any
	if err != nil || json.Unmarshal(data, &parsed) != nil || len(parsed) != 2 || parsed[1]["asked"] != "nowhere.example" {
		t.Errorf("%v: %s", err, data)
	}
	for _, args := range [][]string{{"find", "nothing", "a.example"}} {
		if _, errs, code := d.do(t, args...); code != 1 || !strings.Contains(errs, "nothing is published") {
			t.Errorf("exit %d, %s", code, errs)
		}
	}
}
