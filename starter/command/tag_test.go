package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A lost manifest is an error, not a lake without names.
func TestTagOfALostManifest(t *testing.T) {
	url, v := diffLake(t)
	if err := os.Remove(filepath.Join(strings.TrimPrefix(url, "file://"), "index", "manifest.json")); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"tag", "tag --json", "tag current x", "tag --remove x", "diff " + v[0] + " " + v[1], "versions"} {
		stdout, stderr, code := starter(t, append(strings.Fields(args), "--lake", url)...)
		if code != 1 || !strings.Contains(stderr, "index/manifest.json") || !strings.Contains(stderr, "starter rebuild") {
			t.Errorf("%s: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestTag(t *testing.T) {
	url, v := diffLake(t)
	for _, c := range []struct {
		args string
		out  string
		code int
	}{
		{"tag", "No version has a name yet.", 0},
		{"tag --json", "[]", 0},
		{"tag current release", "release is version " + v[2], 0},
		{"tag " + v[0] + " old", "old is version " + v[0], 0},
		{"tag " + v[0] + " release", v[2] + "; to move it: --move", 1},
		{"tag old release --move --json", `"version": "` + v[0] + `"`, 0},
		{"tag", "old      " + v[0], 0},
		{"versions --parts --version-id release", "/urls/", 0},
		{"diff old current-one", "the tags are old, release", 1},
		{"diff release " + v[1], "From  " + v[0], 0},
		{"diff current current", "No domain has other totals", 0},
		{"versions --parts --version-id current", "/urls/", 0},
		{"tag current release --move", "release is version " + v[2] + "; it was " + v[0], 0},
		{"tag --remove old", "old is removed; version " + v[0], 0},
		{"tag --remove old", "unknown tag", 1},
		{"versions --version-id release", "--parts --version-id VERSION", 2},
		{"tag release", "tag current release", 2},
		{"tag --remove", "takes one name", 2},
		{"tag --move", "takes a version and a name", 2},
		{"tag current", "as in: tag current release-2026-11", 2},
		{"tag " + v[0], "as in: tag " + v[0], 2},
		{"tag --remove x --move", "no --move", 2},
		{"tag current 1st", "bad name of a tag", 1},
		{"tag current CURRENT", "bad name of a tag", 1},
		{"tag 2026 x", "unknown version", 1},
	} {
		stdout, stderr, code := starter(t, append(strings.Fields(c.args), "--lake", url)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.out) {
			t.Errorf("%s: exit %d, want %d\n%s%s, want %s", c.args, code, c.code, stdout, stderr, c.out)
		}
	}
}
