//go:build !linux

package processors

func batch() {}
