//go:build !linux

package mapped

func residentFileBytes() int64 { return 0 }

func dropResident([]byte) {}
