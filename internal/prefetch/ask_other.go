//go:build !amd64

package prefetch

func ask([]byte) {}
