package partwriter

import (
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/lake/urlnorm"
)

// The id of a URL of any length is that of urlnorm, whatever stands around it.
func TestURLIDIsThatOfURLNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		for range 20 {
			buf := make([]byte, urlIDRoom+n+urlIDRoom)
			for i := range buf {
				buf[i] = byte(rng.Uint32())
			}
			url := buf[urlIDRoom : urlIDRoom+n]
			if got, want := urlID(buf[:urlIDRoom+n], urlIDRoom), urlnorm.URLID(url); got != want {
				t.Fatalf("%d bytes: %016x, want %016x", n, got, want)
			}
		}
	}
}

func FuzzURLID(f *testing.F) {
	f.Add([]byte("https://example.com/a/path?of=some&length=that-is-usual"))
	f.Fuzz(func(t *testing.T, url []byte) {
		buf := append(make([]byte, urlIDRoom, urlIDRoom+len(url)+urlIDRoom), url...)
		if got, want := urlID(buf, urlIDRoom), urlnorm.URLID(url); got != want {
			t.Errorf("%q: %016x, want %016x", url, got, want)
		}
	})
}
