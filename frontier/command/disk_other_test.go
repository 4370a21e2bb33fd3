//go:build unix && !linux

package command

// fillDisk does nothing: limits of another process are Linux's.
func (c *crawl) fillDisk(int) fault { return func() {} }
