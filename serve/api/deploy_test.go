package api

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/serve/lookup"
)

// TestDashboardAndAlertsUseWhatThereIs compares the metrics in deploy/ with those of a server, and
// their labels too.
func TestDashboardAndAlertsUseWhatThereIs(t *testing.T) {
	s := start(t, small(t), lookup.Options{LeaseTTL: lookup.DefaultLeaseTTL})
	s.metrics.Connections(NewConnections(1, 1))
	s.ask("GET", "/v1/domain/example.com")
	families, err := s.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string]bool{"up": {}} // of metrics
	for _, f := range families {
		of := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				of[l.GetName()] = true
			}
		}
		labels[f.GetName()] = of
		if f.GetType().String() == "HISTOGRAM" {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				labels[f.GetName()+suffix] = of
			}
		}
	}
	used := map[string][]string{"dashboard": dashboardQueries(t), "alerts": alertQueries(t)}
	selector := regexp.MustCompile(`\b((?:urlake|process|go)_\w+|up)\b(\{[^}]*\})?`)
	label := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	for file, queries := range used {
		if len(queries) < 10 {
			t.Errorf("%s: only %d queries were found", file, len(queries))
		}
		for _, q := range queries {
			found := selector.FindAllStringSubmatch(q, -1)
			if len(found) == 0 {
				t.Errorf("%s: no metric in %s", file, q)
			}
			for _, m := range found {
				known, ok := labels[m[1]]
				if !ok {
					t.Errorf("%s: a server has no metric %s", file, m[1])
				}
				if !strings.Contains(m[2], `job="urlake-serve"`) {
					t.Errorf("%s: %s selects the metrics of all jobs", file, m[0])
				}
				for _, l := range label.FindAllStringSubmatch(m[2], -1) {
					if !known[l[1]] && l[1] != "job" && l[1] != "instance" {
						t.Errorf("%s: %s has no label %s", file, m[1], l[1])
					}
				}
			}
		}
	}
}

func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "deploy", "grafana-serve.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d is there twice, or shows nothing", p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if strings.HasPrefix(v.Query, "label_values(") {
			queries = append(queries, v.Query)
		}
	}
	return queries
}

func alertQueries(t *testing.T) (queries []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "deploy", "alerts-serve.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			queries = append(queries, r.Expr)
		}
	}
	return queries
}

// TestAlertsAreValid has Debian's promtool check the rules, and when they fire.
func TestAlertsAreValid(t *testing.T) {
	promtool, ok := testenv.Installed(t, "promtool")
	if !ok {
		return
	}
	for _, args := range [][]string{{"check", "rules", "alerts-serve.yml"}, {"test", "rules", "alerts-serve.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(testenv.Root(t), "deploy")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
