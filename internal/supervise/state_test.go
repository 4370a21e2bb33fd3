package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOneGroupWhateverTheName claims the folder of a lake by other names and other states.
func TestOneGroupWhateverTheName(t *testing.T) {
	dir := t.TempDir()
	lake, link := filepath.Join(dir, "lake"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(lake, 0o777), os.Symlink(lake, link)); err != nil {
		t.Fatal(err)
	}
	claim := func(root, lake string) (*Claim, error) {
		s, err := StateOf(filepath.Join(dir, root), "file://"+filepath.ToSlash(lake))
		if err != nil {
			t.Fatal(err)
		}
		return s.Claim(t.Context(), func(Running) error { return errors.New("waits") })
	}
	first, err := claim("a", lake)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ root, lake string }{{"a", link}, {"b", lake}, {"b", link}} {
		if _, err := claim(c.root, c.lake); !errors.Is(err, ErrElsewhere) {
			t.Errorf("state %s, %s: %v", c.root, c.lake, err)
		}
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := claim("b", link)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}
