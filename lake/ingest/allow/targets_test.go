package allow_test

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/lake/ingest/allow"
)

func TestTargets(t *testing.T) {
	parse := func(names ...string) *allow.Targets {
		targets, err := allow.ParseTargets(names)
		if err != nil {
			t.Fatal(err)
		}
		return targets
	}
	for _, c := range []struct {
		name    string
		targets *allow.Targets
		host    string
		port    uint16
		ok      bool
	}{
		{"nothing said", nil, "a.example", 1, true},
		{"loopback", allow.Loopback(), "127.0.0.1", 5432, true},
		{"all of 127/8", allow.Loopback(), "127.9.9.9", 5432, true},
		{"mapped", allow.Loopback(), "::ffff:127.0.0.1", 5432, true},
		{"IPv6", allow.Loopback(), "::1", 7070, true},
		{"a name", allow.Loopback(), "LocalHost", 7070, true},
		{"a socket", allow.Loopback(), "/run/postgresql", 5432, true},
		{"elsewhere", allow.Loopback(), "192.0.2.1", 5432, false},
		{"a name that looks local", allow.Loopback(), "localhost.example", 5432, false},
		{"an address in other words", allow.Loopback(), "0.0.0.0", 5432, false},
		{"every port", parse("db.example"), "DB.example", 99, true},
		{"its port", parse("db.example:5432"), "db.example", 5432, true},
		{"another port", parse("db.example:5432"), "db.example", 5433, false},
		{"below a name", parse("db.example"), "x.db.example", 5432, false},
		{"no loopback then", parse("db.example"), "127.0.0.1", 5432, false},
		{"no socket then", parse("db.example"), "/run/postgresql", 5432, false},
		{"a folder", parse("/run/postgresql"), "/run/postgresql", 5432, true},
		{"another folder", parse("/run/postgresql"), "/run/postgresql/../evil", 5432, false},
		{"one loopback port", parse("localhost:7070"), "localhost", 7070, true},
		{"another loopback port", parse("localhost:7070"), "localhost", 7071, false},
		{"brackets", parse("[2001:db8::1]:5432"), "2001:db8::1", 5432, true},
		{"IPv6 without a port", parse("2001:db8::1"), "2001:db8::1", 1, true},
		{"everything", parse("*"), "192.0.2.1", 1, true},
	} {
		if err := c.targets.Check(c.host, c.port); (err == nil) != c.ok || err != nil && !errors.Is(err, allow.ErrRefused) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, bad := range []string{"", "http://a.example", "a.example/x", "u@a.example", "a.example:0", "a.example:x", "*.example"} {
		if _, err := allow.ParseTargets([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
