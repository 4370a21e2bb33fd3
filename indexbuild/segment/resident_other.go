//go:build !linux

package segment

func residentFileBytes() int64 { return 0 }

func dropResident([]byte) {}
