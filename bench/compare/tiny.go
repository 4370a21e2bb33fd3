package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tinyRows is the number of lines of each of many small lists.
const tinyRows = 10

// tinyLists ingests n lists of tinyRows lines by one command, each as a dataset, into an empty lake
// and then again with nothing changed.
func tinyLists(ctx context.Context, root string, n int64, dir string) error {
	defer os.RemoveAll(dir)
	door, err := openFront(ctx, root, filepath.Join(dir, "front"))
	if err != nil {
		return err
	}
	if door == nil {
		fmt.Println("\nMany small lists: left out, needs bin/temporal (make tools)")
		return nil
	}
	defer door.stop()
	lists, lakeDir := filepath.Join(dir, "lists"), filepath.Join(dir, "lake")
	if err := writeTiny(ctx, n, dir, lists); err != nil {
		return err
	}
	fmt.Printf("\nMany small lists: %d of %d lines, from the start of starter ingest --datasets-from files --wait to its end, version published\n",
		n, tinyRows)
	for _, again := range []bool{false, true} {
		before, err := door.histories(ctx)
		if err != nil {
			return err
		}
		e, err := door.ingest(ctx, lakeDir, "--datasets-from", "files", lists)
		if err != nil {
			return err
		}
		what := "first"
		if again {
			what = "again, nothing changed"
		}
		fmt.Printf("  %s: %.1f s (CPU: worker %.1f s, Temporal %.1f, starter %.1f), to be 60; load average %s\n",
			what, e.Seconds, e.Worker, e.Temporal, e.Starter, loadAverage())
		after, err := door.histories(ctx)
		if err != nil {
			return err
		}
		for _, h := range after[len(before):] {
			fmt.Printf("    history of %s: %s events, %s bytes\n", h.Type.Name, h.HistoryLength, h.HistorySizeBytes)
		}
	}
	objects, err := objectsBelow(lakeDir)
	if err != nil {
		return err
	}
	all := stored{}
	for _, folder := range slices.Sorted(maps.Keys(objects)) {
		s := objects[folder]
		table("  "+folder, strconv.Itoa(s.files), strconv.FormatInt(s.bytes, 10), "")
		all.files, all.bytes = all.files+s.files, all.bytes+s.bytes
	}
	table("objects, bytes", strconv.Itoa(all.files), strconv.FormatInt(all.bytes, 10), fmt.Sprintf("%.2f objects a list, to be 5", float64(all.files)/float64(n)))
	return nil
}

// writeTiny writes n lists to a folder. Together they have the lines of one generated list.
func writeTiny(ctx context.Context, n int64, dir, lists string) error {
	whole := filepath.Join(dir, "whole")
	var size int64
	if err := child(ctx, &size, "lists", strconv.FormatInt(n*tinyRows, 10), "1", whole); err != nil {
		return err
	}
	defer os.RemoveAll(whole)
	f, err := os.Open(filepath.Join(whole, "ds1.txt"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.MkdirAll(lists, 0o777); err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	for i := range n {
		var text strings.Builder
		for range tinyRows {
			if !lines.Scan() {
				return fmt.Errorf("the lines end at list %d: %w", i, lines.Err())
			}
			text.Write(lines.Bytes())
			text.WriteByte('\n')
		}
		if err := os.WriteFile(filepath.Join(lists, fmt.Sprintf("list-%05d.txt", i)), []byte(text.String()), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// history is an execution as the command line of Temporal describes it. Numbers are text.
type history struct {
	Execution struct {
		WorkflowID string `json:"workflowId"`
		RunID      string `json:"runId"`
	} `json:"execution"`
	Type struct {
		Name string `json:"name"`
	} `json:"type"`
	StartTime        string `json:"startTime"`
	HistoryLength    string `json:"historyLength"`
	HistorySizeBytes string `json:"historySizeBytes"`
}

// histories returns all executions in the order of their starts.
func (f *front) histories(ctx context.Context) ([]history, error) {
	ask := func(out any, args ...string) error {
		cmd := exec.CommandContext(ctx, f.program, append([]string{"workflow", "--address", f.address, "-o", "json"}, args...)...)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(text, out)
		}
		if err != nil {
			return fmt.Errorf("temporal workflow %s: %w", args[0], err)
		}
		return nil
	}
	var all []history
	if err := ask(&all, "list"); err != nil {
		return nil, err
	}
	for i := range all {
		var d struct {
			Info history `json:"workflowExecutionInfo"`
		}
		if err := ask(&d, "describe", "-w", all[i].Execution.WorkflowID, "-r", all[i].Execution.RunID); err != nil {
			return nil, err
		}
		all[i] = d.Info // the list does not tell the length of those that run
	}
	slices.SortFunc(all, func(a, b history) int { return strings.Compare(a.StartTime, b.StartTime) })
	return all, nil
}

// stored counts objects.
type stored struct {
	files int
	bytes int64
}

// objectsBelow counts the objects of a lake by folder.
func objectsBelow(dir string) (map[string]stored, error) {
	out := map[string]stored{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".tmp" { // locks and unfinished files
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		folder, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		s := out[folder]
		s.files++
		s.bytes += info.Size()
		out[folder] = s
		return err
	})
	return out, err
}
