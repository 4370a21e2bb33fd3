package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// level is an instruction set that real processors have: those of a generation, and no more.
type level struct {
	name string
	// adds are the flags that the level has beyond the one before it and that some package asks
	// for.
	adds []string
}

// levels are ordered: each holds the flags of those before it.
var levels = []level{
	{name: "plain Go"},
	{"AVX2", []string{"HasAVX2", "HasBMI1", "HasBMI2", "HasPOPCNT"}},                                // Haswell, Zen 1
	{"AVX-512", []string{"HasAVX512F", "HasAVX512BW", "HasAVX512CD", "HasAVX512DQ", "HasAVX512VL"}}, // Skylake server
	{"AVX-512 VBMI", []string{"HasAVX512VBMI", "HasAVX512VAES"}},                                    // Ice Lake, Zen 4
}

// has are the flags of the level: its own and those of the levels below it.
func (l level) has() map[string]bool {
	set := map[string]bool{}
	for _, below := range levels {
		for _, f := range below.adds {
			set[f] = true
		}
		if below.name == l.name {
			break
		}
	}
	return set
}

// missing are the flags of the level that a machine lacks.
func (l level) missing(machine map[string]bool) (missing []string) {
	for f := range l.has() {
		if !machine[f] {
			missing = append(missing, strings.TrimPrefix(f, "Has"))
		}
	}
	slices.Sort(missing)
	return missing
}

// godebug switches off what higher levels add, and below AVX2 everything that can be. AVX512 is the
// flag that says that there is any of it.
func (l level) godebug() string {
	if len(l.has()) == 0 {
		return "cpu.all=off"
	}
	var off []string
	has := l.has()
	for _, above := range levels {
		for _, f := range above.adds {
			if !has[f] {
				off = append(off, "cpu."+strings.ToLower(strings.TrimPrefix(f, "Has"))+"=off")
			}
		}
	}
	return strings.Join(off, ",")
}

// check starts this program at the level and compares the flags that a process has there with those
// of the level, as far as any package asks for them.
func (l level) check() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-flags")
	cmd.Env = append(os.Environ(), "GODEBUG="+l.godebug())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("CPU level %s: read flags: %w", l.name, err)
	}
	var set map[string]bool
	if err := json.Unmarshal(out, &set); err != nil {
		return fmt.Errorf("CPU level %s: read flags: %w", l.name, err)
	}
	has := l.has()
	for _, known := range levels {
		for _, f := range known.adds {
			if set[f] != has[f] {
				return fmt.Errorf("CPU level %s: GODEBUG=%s leaves cpu.X86.%s %t", l.name, l.godebug(), f, set[f])
			}
		}
	}
	return nil
}
