package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
)

// compose is the part of the compose file format that this project uses. Other members fail the
// test.
type compose struct {
	Urlake   any                `yaml:"x-urlake"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]struct{}
}

type service struct {
	Build       struct{ Context, Dockerfile string }
	Image       string // of others
	Environment map[string]string
	Command     []string
	Entrypoint  []string
	Ports       []string
	Expose      []string
	Volumes     []string
	Profiles    []string
	Restart     string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

// args returns the command line of a service.
func (s service) args() []string { return append(slices.Clone(s.Entrypoint), s.Command...) }

// composeFile reads docker-compose.yml.
func composeFile(t *testing.T) compose {
	t.Helper()
	f, err := os.Open(filepath.Join(testenv.Root(t), "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var c compose
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestComposeFileAgreesWithThePrograms checks the compose file and the Dockerfile without a
// container engine, which would report mistakes only when it runs them.
func TestComposeFileAgreesWithThePrograms(t *testing.T) {
	t.Parallel()
	root := testenv.Root(t)
	c := composeFile(t)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	dockerfile, readme := read("deploy/Dockerfile"), read("README.md")
	names := []string{}
	for name := range c.Services {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := gocmp.Diff([]string{"db", "frontier", "prometheus", "redis", "s3", "serve", "starter", "temporal", "worker"}, names); diff != "" {
		t.Fatalf("services:\n%s", diff)
	}

	published := map[string]string{}
	for name, s := range c.Services {
		if (s.Build.Context != "." || s.Build.Dockerfile != "deploy/Dockerfile") && s.Image == "" {
			t.Errorf("%s is built from %+v", name, s.Build)
		}
		for on := range s.DependsOn {
			if _, ok := c.Services[on]; !ok {
				t.Errorf("%s depends on %s, which is not a service", name, on)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat(filepath.Join(root, from)); err != nil {
					t.Errorf("%s mounts %s: %v", name, from, err)
				}
			} else if _, ok := c.Volumes[from]; !ok {
				t.Errorf("%s mounts %s, which is not a volume", name, from)
			}
		}
		for _, p := range s.Ports {
			parts := strings.Split(p, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" || parts[1] != parts[2] {
				t.Errorf("%s publishes %s, want 127.0.0.1 and the same port as in the container", name, p)
				continue
			}
			published[parts[1]] = name
		}
		for _, port := range s.Expose {
			if !slices.Contains(s.Command, ":"+port) {
				t.Errorf("%s exposes port %s, on which it does not listen: %v", name, port, s.Command)
			}
		}
		for variable := range s.Environment {
			if flag, ok := strings.CutPrefix(variable, "URLAKE_"); ok {
				for _, program := range []string{"worker", "serve"} {
					if !strings.Contains(help(t, program), "["+variable+"]") {
						t.Errorf("%s sets %s, and %s has no --%s", name, variable, program, strings.ToLower(flag))
					}
				}
			}
		}
	}
	want := map[string]string{
		"7070": "frontier", "7071": "frontier", "8080": "serve", "7233": "temporal", "8233": "temporal", "9090": "prometheus",
	}
	if diff := gocmp.Diff(want, published); diff != "" {
		t.Errorf("published ports:\n%s", diff)
	}
	if !strings.Contains(readme, "localhost:8080") || !strings.Contains(readme, "127.0.0.1:7233") {
		t.Error("the README does not have the ports that the compose file publishes")
	}

	// Names and hosts: what this machine, the other containers and the documented commands ask for.
	names = append(names, "localhost")
	file := read("docker-compose.yml")
	for name, want := range map[string]struct {
		flag  string
		hosts []string
	}{
		"serve":    {"--allow-host", []string{"localhost", "serve"}},
		"frontier": {"--allow-host", []string{"localhost", "frontier"}},
		"worker":   {"--allow-target", []string{regexp.MustCompile(`--dsn postgres://\w+@(\w+)/`).FindStringSubmatch(file)[1], "frontier"}},
	} {
		command := c.Services[name].Command
		hosts := ""
		if i := slices.Index(command, want.flag); i >= 0 {
			hosts = command[i+1]
		}
		for _, host := range want.hosts {
			if !slices.Contains(names, host) || !slices.Contains(strings.Split(hosts, ","), host) {
				t.Errorf("%s has %s %q, want %s, which is a service", name, want.flag, hosts, host)
			}
		}
	}

	// Programs and flags.
	copied := regexp.MustCompile(`/src/bin/(\w+)|ln -s urlake /usr/local/bin/(\w+)`).FindAllStringSubmatch(dockerfile, -1)
	var image []string
	for _, m := range copied {
		image = append(image, m[1]+m[2])
	}
	flag := regexp.MustCompile(`^--[a-z][a-z-]*`)
	for name, s := range c.Services {
		if s.Image != "" {
			continue
		}
		line := s.args()
		if line[0] == "sh" {
			_, run, ok := strings.Cut(line[2], "exec ")
			if !ok {
				t.Errorf("%s: the shell has to exec the program, which would get no signals otherwise: %s", name, line[2])
			}
			line = strings.Fields(run)
		}
		if !slices.Contains(image, line[0]) {
			t.Errorf("%s runs %s, which the image lacks", name, line[0])
		}
		verbs := []string{}
		text := help(t, line[0])
		for _, a := range line[1:] {
			if f := flag.FindString(a); f != "" {
				if !strings.Contains(text, f+" ") && !strings.Contains(text, f+"\n") {
					t.Errorf("%s: %s: its help does not know %s", name, strings.Join(line, " "), f)
				}
			} else if line[0] == "temporal" && (a == "server" || a == "start-dev") || a == "posix" {
				verbs = append(verbs, a)
				text = help(t, line[0], verbs...)
			}
		}
	}

	// The image.
	targets := regexp.MustCompile(`(?m)^RUN make (.+)$`).FindStringSubmatch(dockerfile)
	if targets == nil {
		t.Fatal("the Dockerfile does not run make")
	}
	if out, err := exec.Command("make", append([]string{"-C", root, "-n"}, strings.Fields(targets[1])...)...).CombinedOutput(); err != nil {
		t.Errorf("make %s: %v\n%s", targets[1], err, out)
	}
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))
	if from := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+)`).FindStringSubmatch(dockerfile); from == nil || from[1] != module[1] {
		t.Errorf("the image is built with Go %v, go.mod says %s", from, module[1])
	}
	if !slices.Contains(strings.Fields(read(".dockerignore")), "bin") {
		t.Error(".dockerignore lacks bin, so programs of the host would be copied into the image")
	}

	// The commands in the README and in the compose file.
	for _, m := range regexp.MustCompile(`(?m)^(?:#   )?docker compose (.+)$`).FindAllStringSubmatch(readme+read("docker-compose.yml"), -1) {
		fields := strings.Fields(m[1])
		if fields[0] == "--profile" {
			if !slices.ContainsFunc(slices.Collect(maps.Values(c.Services)), func(s service) bool { return slices.Contains(s.Profiles, fields[1]) }) {
				t.Errorf("docker compose %s: no service has the profile", m[1])
			}
			fields = fields[2:]
		}
		switch fields[0] {
		case "up":
		case "exec":
			s := c.Services[fields[1]]
			if want := []string{"psql", "-U", s.Environment["POSTGRES_USER"], s.Environment["POSTGRES_DB"]}; !slices.Equal(fields[2:], want) {
				t.Errorf("docker compose %s: want %v", m[1], want)
			}
		case "run":
			if fields[1] != "--rm" || c.Services[fields[2]].args()[0] != fields[2] {
				t.Errorf("docker compose %s: want --rm and a service whose entrypoint has its name", m[1])
			}
			if fields[3] == "export" {
				db := c.Services["db"]
				dsn := "postgres://" + db.Environment["POSTGRES_USER"] + "@db/" + db.Environment["POSTGRES_DB"]
				if !slices.Contains(fields, dsn) || db.Environment["POSTGRES_HOST_AUTH_METHOD"] != "trust" || len(db.Ports) > 0 {
					t.Errorf("docker compose %s: want the DSN %s, whose server needs no password and has no port", m[1], dsn)
				}
				continue
			}
			input := fields[len(fields)-1]
			below, ok := strings.CutPrefix(input, "/data/")
			if _, err := os.Stat(filepath.Join(root, "testdata", below)); !ok || err != nil {
				t.Errorf("docker compose %s: %s is not in the mounted folder", m[1], input)
			}
		default:
			t.Errorf("docker compose %s: unknown command; add it to this test", m[1])
		}
	}
}

// help returns the help text of a program, or of one of its verbs.
func help(t *testing.T, program string, verbs ...string) string {
	t.Helper()
	p := filepath.Join(testenv.Root(t), "bin", program)
	switch program {
	case "worker", "serve", "starter", "frontierd":
		bin, err := programs()
		if err != nil {
			t.Fatal(err)
		}
		p = filepath.Join(bin, program)
	default:
		testenv.Program(t, program)
	}
	out, err := exec.Command(p, append(slices.Clone(verbs), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v\n%s", program, verbs, err, out)
	}
	return string(out)
}

// TestComposeServicesWorkTogether runs the command lines of the services as processes of this
// machine, with the environment of the services, folders instead of volumes and free ports instead
// of host names.
func TestComposeServicesWorkTogether(t *testing.T) {
	t.Parallel()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := composeFile(t)
	testenv.Program(t, "versitygw")
	temporal := testenv.Program(t, "temporal")
	dsn := testenv.NewPostgres(t).NewDatabase(t)
	socket, _, _ := strings.Cut(strings.TrimPrefix(dsn, "host="), " ")
	s3 := testenv.FreeAddress(t)
	addresses := map[string]string{":8080": testenv.FreeAddress(t), ":9464": testenv.FreeAddress(t)}
	u := &urlake{bin: bin, temporal: testenv.FreeAddress(t), base: "http://" + addresses[":8080"]}
	_, port, _ := net.SplitHostPort(u.temporal)
	common := []string{"HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "PATH=" + bin + ":" + filepath.Dir(temporal) + ":/usr/bin:/bin"}
	state := map[string]string{}
	line := func(name string) (args, env []string) {
		s := c.Services[name]
		if state[name] == "" {
			state[name] = t.TempDir()
		}
		here := strings.NewReplacer("/state", state[name], "temporal:7233", u.temporal, "http://s3:7070", "http://"+s3, "--port :7070", "--port "+s3,
			"db,frontier", "db,frontier,"+socket, "0.0.0.0", "127.0.0.1", "/data/", filepath.Join(testenv.Root(t), "testdata")+"/")
		for _, a := range s.args() {
			args = append(args, cmp.Or(addresses[a], here.Replace(a)))
		}
		env = slices.Clone(common)
		for k, v := range s.Environment {
			env = append(env, k+"="+here.Replace(v))
		}
		return args, env
	}
	run := func(name string, more ...string) {
		var args []string
		args, u.env = line(name)
		program, err := lookPath(args[0], bin, filepath.Dir(temporal))
		if err != nil {
			t.Fatal(err)
		}
		u.run(t, name, program, append(args[1:], more...)...)
	}
	run("s3")
	run("temporal", "--port", port, "--headless", "--log-level", "error")
	until(t, "Temporal and S3 answer", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s3)
		if err != nil {
			return err
		}
		conn.Close()
		health := exec.CommandContext(ctx, temporal, "operator", "cluster", "health", "--address", u.temporal)
		health.Env = common
		return health.Run()
	})
	run("worker")
	answers(t, "http://"+addresses[":9464"]+"/readyz", http.StatusOK, "ready")
	run("serve")
	// Arguments follow the entrypoint, as with docker compose run.
	_, u.env = line("starter")
	var res struct{ Version string }
	u.starterJSON(t, &res, "ingest", "--dataset", "mine", "--wait", "--json", filepath.Join(testenv.Root(t), "testdata", "smallweb"))
	until(t, "the version is served", func(ctx context.Context) error {
		answer, err := u.client(t).Domain(ctx, "marginalia.nu", client.Query{})
		if err != nil {
			return err
		}
		if answer.Version != res.Version || len(answer.Datasets) != 1 {
			return fmt.Errorf("%+v", answer)
		}
		return nil
	})
	// The documented export, into a server of the test.
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^#   docker compose run --rm starter (export postgres .+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("docker-compose.yml has no export to PostgreSQL")
	}
	args := strings.Fields(string(m[1]))
	args[slices.Index(args, "--dsn")+1] = dsn
	if out, errs, code := u.starter(t, args...); code != 0 || !strings.Contains(out, "in 1 dataset") {
		t.Errorf("starter %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
}

// lookPath returns the path of a program in one of the folders, or else on PATH.
func lookPath(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return exec.LookPath(name)
}
