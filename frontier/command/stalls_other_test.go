//go:build unix && !linux

package command

import (
	"errors"
	"time"
)

func processors() []int { return nil }

func runFirst(int) error { return errors.ErrUnsupported }

func nap(d time.Duration) { time.Sleep(d) }
