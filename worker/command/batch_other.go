//go:build !linux

package command

// batchScheduling does nothing: other systems have no such policy.
func batchScheduling() {}
