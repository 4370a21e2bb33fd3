package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
)

func TestACL(t *testing.T) {
	url, _ := diffLake(t)
	datasets, _, _ := starter(t, "datasets", "--json", "--lake", url)
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(datasets), &list); err != nil || len(list) == 0 {
		t.Fatalf("%v: %s", err, datasets)
	}
	name := list[0].Name
	for _, c := range []struct {
		args string
		out  string
		code int
	}{
		{"acl", "Datasets without readers of their own: public", 0},
		{"acl --dataset " + name, "public   by default", 0},
		{"acl --dataset " + name + " --readers bea,ada", name + ": ada,bea (its own)", 0},
		{"acl --dataset " + name + " --json", `"names": [`, 0},
		{"acl --dataset " + name + " --readers none", name + ": none (its own)", 0},
		{"acl --dataset " + name + " --readers default", name + ": public (by default)", 0},
		{"acl --default none --json", `"default": {}`, 0},
		{"acl --dataset " + name, "none     by default", 0},
		{"acl --dataset later --readers ada", "--ahead", 1},
		{"acl --dataset later --readers ada --ahead", "later: ada (its own; not in the lake yet)", 0},
		{"acl --dataset later", "not in the lake yet", 0},
		{"acl", "later", 0},
		{"acl --json", `"ahead": true`, 0},
		{"acl --dataset nowhere", `no dataset "nowhere"`, 1},
		{"acl --repair", "1 dataset with readers of their own; others: none", 0},
		{"acl --repair --default none", "--repair is alone", 2},
		{"acl --readers ada", "name it with --dataset", 2},
		{"acl --ahead", "--ahead is for", 2},
		{"acl --dataset x --readers a,,b", "is no name of a reader", 2},
		{"acl --dataset x --readers public,ada", "has a meaning of its own", 2},
		{"acl --dataset ../x", "dataset", 2},
		{"acl --default ada,", "is no name of a reader", 2},
		{"acl --dataset x --readers=", "--readers is empty; write none", 2},
		{"acl --default=", "--default is empty; write none", 2},
		{"acl stray", "stray", 2},
	} {
		stdout, stderr, code := starter(t, append(strings.Fields(c.args), "--lake", url)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.out) {
			t.Errorf("%s: exit %d, want %d\n%s%s, want %s", c.args, code, c.code, stdout, stderr, c.out)
		}
	}
	// Damage names what mends it, and that does.
	path := filepath.Join(strings.TrimPrefix(url, "file://"), filepath.FromSlash(access.ListKey))
	if err := os.WriteFile(path, []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := starter(t, "verify", "--lake", url); code != 1 || !strings.Contains(stdout+stderr, access.ListKey) {
		t.Errorf("verify: exit %d: %s%s", code, stdout, stderr)
	}
	if _, stderr, code := starter(t, "acl", "--lake", url); code != 1 || !strings.Contains(stderr, "acl --lake "+url+" --repair") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if stdout, stderr, code := starter(t, "acl", "--lake", url, "--repair"); code != 0 || !strings.Contains(stdout, "that of the copy again") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// A lake can be closed before it has anything.
func TestACLAhead(t *testing.T) {
	url := "file://" + t.TempDir()
	if _, stderr, code := starter(t, "acl", "--lake", url, "--default", "none"); code != 1 || !strings.Contains(stderr, "nothing was ever ingested") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := starter(t, "acl", "--lake", url, "--default", "none", "--ahead"); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := starter(t, "token", "create", "--lake", url, "--name", "ada", "--ahead"); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
}

func TestToken(t *testing.T) {
	url, _ := diffLake(t)
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Token, ID, Name string
		Expires         *time.Time
	}
	stdout, stderr, code := starter(t, "token", "create", "--lake", url, "--name", "ada", "--expires", "90d", "--json")
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != 0 || made.Name != "ada" || made.Expires == nil {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	if days := time.Until(*made.Expires).Hours() / 24; days < 89 || days > 90.1 {
		t.Errorf("it expires %s", made.Expires)
	}
	known, err := access.LoadTokens(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := known.Find(made.Token, time.Now()); err != nil || tok.Name != "ada" {
		t.Fatalf("%+v, %v", tok, err)
	}
	stdout, _, _ = starter(t, "token", "create", "--lake", url, "--name", "bea")
	plain, _, _ := strings.Cut(stdout, "\n")
	if !strings.HasPrefix(plain, "urlake_") || !strings.Contains(stdout, "it does not expire") {
		t.Errorf("%s", stdout)
	}
	for _, c := range []struct {
		args string
		out  string
		code int
	}{
		{"token list", made.ID, 0},
		{"token list --name bea", "it does not expire", 0},
		{"token list --name cy", "no such token", 0},
		{"token list --json", `"taken": true`, 0},
		{"token create --name ada --expires 2099-01-01", "2099-01-01T00:00:00Z", 0},
		{"token create --name ada --expires 12h", "it expires", 0},
		{"token create", "--name NAME", 2},
		{"token create --name a,b", "is no name of a reader", 2},
		{"token create --name ada --expires yesterday", "no time in the future", 2},
		{"token create --name ada --expires 2001-01-01", "no time in the future", 2},
		{"token create --name ada --expires -1h", "no time in the future", 2},
		{"token create --name ada --expires 0d", "no time in the future", 2},
		{"token revoke", "--name NAME", 2},
		{"token revoke --all --name ada", "leave --name and --id out", 2},
		{"token revoke --name cy", "no token of cy to revoke", 1},
		{"token revoke --name bea --id " + made.ID, "no token of bea with the id", 1},
		{"token revoke --name ada --id " + made.ID, "1 token revoked", 0},
		{"token list --name ada", "revoked 2", 0},
		{"token revoke --name ada --json", `"revoked": 2`, 0},
		{"token revoke --all", "tokens revoked", 0},
		{"token list", "no such token", 0},
		{"token", "choose create, list or revoke", 2},
	} {
		stdout, stderr, code := starter(t, append(strings.Fields(c.args), "--lake", url)...)
		if c.args == "token" {
			stdout, stderr, code = starter(t, "token")
		}
		if code != c.code || !strings.Contains(stdout+stderr, c.out) {
			t.Errorf("%s: exit %d, want %d\n%s%s, want %s", c.args, code, c.code, stdout, stderr, c.out)
		}
		if strings.Contains(stdout+stderr, made.Token) || strings.Contains(c.args, "list") && strings.Contains(stdout, known.Tokens[0].SHA256) {
			t.Errorf("%s shows a secret:\n%s", c.args, stdout)
		}
	}
	path := filepath.Join(strings.TrimPrefix(url, "file://"), filepath.FromSlash(access.TokensKey))
	if err := os.WriteFile(path, []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"list", "create --name ada", "revoke --name ada"} {
		args := append([]string{"token"}, strings.Fields(verb)...)
		if _, stderr, code := starter(t, append(args, "--lake", url)...); code != 1 || !strings.Contains(stderr, "token revoke --lake "+url+" --all") {
			t.Errorf("%s: exit %d: %s", verb, code, stderr)
		}
	}
	if _, stderr, code := starter(t, "token", "revoke", "--lake", url, "--all"); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
