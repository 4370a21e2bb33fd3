package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// doorsEnd is the heading of the README before which there are only commands of the program urlake,
// for one person on one machine.
const doorsEnd = "## What it promises"

// doorCommands divides the README's commands: those for one person on one machine, and the others.
func doorCommands(t *testing.T) (doors, others []command) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(data), "\n"+doorsEnd+"\n")
	if !ok {
		t.Fatalf("the README has no heading %q", doorsEnd)
	}
	end := strings.Count(before, "\n") + 1
	for _, c := range commands(t, "README.md") {
		if c.line <= end {
			doors = append(doors, c)
		} else {
			others = append(others, c)
		}
	}
	return doors, others
}

// shellOf returns a shell command of a person whose working folder has the project's testdata.
func (d *door) shellOf(text string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = d.dir, append(d.env, "PATH="+filepath.Dir(d.program)+":"+pathOf(d.env))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// pathOf is the last PATH of an environment.
func pathOf(env []string) (path string) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	return path
}

// follow runs commands of a document in order, and compares their output with what it shows.
func (d *door) follow(t *testing.T, all []command) {
	t.Helper()
	if err := os.Symlink(filepath.Join(testenv.Root(t), "testdata"), filepath.Join(d.dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if text, ok := cutBackground(c.text); ok {
			var out syncBuffer
			cmd := d.shellOf("exec " + text)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Signal(syscall.SIGINT)
				if err := cmd.Wait(); err != nil {
					t.Errorf("%s: after Ctrl-C: %v\n%s", c.location, err, out.String())
				}
			})
			until(t, text+" is ready", func(context.Context) error {
				if !readyLine.MatchString(out.String()) {
					return errors.New(out.String())
				}
				return nil
			})
			continue
		}
		cmd := d.shellOf(c.text)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %s\n%v\n%s", c.location, c.text, err, &out)
		}
		if c.shown {
			if problem := compareOutput(c.output, out.String()); problem != "" {
				t.Errorf("%s: %s\n%s\nThe output was:\n%s", c.location, c.text, problem, &out)
			}
		}
	}
}

// TestReadmesDoorsRun runs what the README tells a new user to type, and checks the answer that it
// shows first.
func TestReadmesDoorsRun(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	doors, others := doorCommands(t)
	if len(doors) < 15 || len(others) < 15 {
		t.Fatalf("%d commands for one person, %d others", len(doors), len(others))
	}
	d.follow(t, doors)
	for _, list := range []string{"held.csv", "optout.csv"} {
		data, err := os.ReadFile(filepath.Join(d.dir, list))
		if err != nil || bytes.Count(data, []byte("\n")) < 3 {
			t.Errorf("%s: %v\n%s", list, err, data)
		}
	}
	// The first block of the README is an answer, for which the lake has all of the demo's data.
	d.must(t, "add", "./lake", "--ts-column", "t", "testdata/usagov-clicks")
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```text\n$ urlake ")
	shown, _, ok := strings.Cut(rest, "```")
	line, want, _ := strings.Cut(shown, "\n")
	if !ok {
		t.Fatal("the README shows no answer first")
	}
	if problem := compareOutput(want, d.must(t, strings.Fields(line)...)); problem != "" {
		t.Errorf("the README's first answer: %s", problem)
	}
	if st, err := os.Stat(filepath.Join(testenv.Root(t), "docs", "page.png")); err != nil || st.Size() > 100<<10 {
		t.Errorf("the picture of the page: %v", err)
	}
}

// TestFirstMinutes is a new user's first five minutes, as docs/first-minutes.md shows them.
func TestFirstMinutes(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	all := commands(t, "docs/first-minutes.md")
	if len(all) < 6 {
		t.Fatalf("only %d commands", len(all))
	}
	d.follow(t, all)
}
