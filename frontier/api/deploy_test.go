//go:build unix

package api_test

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
)

// TestDashboardAndAlertsUseWhatThereIs compares the metrics in deploy/ with those of a server, and
// their labels too. Metrics of takedowns are only there with a lake.
func TestDashboardAndAlertsUseWhatThereIs(t *testing.T) {
	base := serve(t, 1)[0]
	request(t, "POST", base+"/v1/urls", `{"url":"https://a.example/"}`)
	request(t, "POST", base+"/v1/claims", "{}")
	request(t, "POST", base+"/v1/urls", `{"url":"https://a.example/b"}`)
	_, text := request(t, "GET", base+"/metrics", "")
	labels := map[string]string{"up": "job,instance", "urlake_frontier_exclusions": "", "urlake_frontier_excluded_domains": "", "urlake_frontier_exclusions_age_seconds": ""}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(\{[^}]*\})? `).FindAllStringSubmatch(text, -1) {
		labels[m[1]] += m[2]
	}
	used := map[string]string{}
	for _, name := range []string{"grafana-frontier.json", "alerts-frontier.yml"} {
		data, err := os.ReadFile(filepath.Join(testenv.Root(t), "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries(t, data) {
			found := regexp.MustCompile(`\b((?:urlake|process|go)_\w+|up)\b(\{[^}]*\})?`).FindAllStringSubmatch(q, -1)
			if len(found) == 0 {
				t.Errorf("%s: no metric in %s", name, q)
			}
			for _, m := range found {
				used[m[1]] = name
				has, ok := labels[m[1]]
				if !ok {
					t.Errorf("%s: frontierd has no metric %s", name, m[1])
				}
				if !strings.Contains(m[2], `job="urlake-frontier"`) {
					t.Errorf("%s: %s selects the metrics of all jobs", name, m[0])
				}
				for _, l := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`).FindAllStringSubmatch(m[2], -1) {
					if l[1] != "job" && l[1] != "instance" && !strings.Contains(has, l[1]+"=") {
						t.Errorf("%s: %s has no label %s", name, m[1], l[1])
					}
				}
			}
		}
	}
	if len(used) < 25 {
		t.Errorf("only %d metrics were found in dashboard and alerts", len(used))
	}
	docs, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "frontier.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range labels {
		short, ours := strings.CutPrefix(regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""), "urlake_frontier")
		if ours && !regexp.MustCompile("`"+short+"[`{]").Match(docs) {
			t.Errorf("docs/frontier.md lacks the metric %s", name)
		}
	}
}

// queries are the expressions of a dashboard or of rules.
func queries(t *testing.T, data []byte) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	if json.Unmarshal(data, &dashboard) == nil {
		ids := map[int]bool{}
		for _, p := range dashboard.Panels {
			if ids[p.ID] || p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("panel %d is there twice, or shows nothing", p.ID)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				all = append(all, target.Expr)
			}
		}
		for _, v := range dashboard.Templating.List {
			if strings.HasPrefix(v.Query, "label_values(") {
				all = append(all, v.Query)
			}
		}
		return all
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}

// TestAlertsAreValid has Debian's promtool check the rules, and when they fire.
func TestAlertsAreValid(t *testing.T) {
	promtool, ok := testenv.Installed(t, "promtool")
	if !ok {
		return
	}
	for _, args := range [][]string{
		{"check", "rules", "alerts-frontier.yml"}, {"test", "rules", "alerts-frontier.test.yml"}, {"check", "config", "--syntax-only", "prometheus.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(testenv.Root(t), "deploy")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
