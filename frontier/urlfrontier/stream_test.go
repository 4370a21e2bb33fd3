//go:build unix

package urlfrontier_test

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestPutDiscovered puts batches with URLs that are known, twice in them, of several queues and
// crawls, and none at all: every URL has its status, in order.
func TestPutDiscovered(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, nil)
	c.settled()
	p := c.processes[0]
	stream, err := p.PutDiscovered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(b *pb.DiscoveredBatch) {
		t.Helper()
		if err := stream.Send(b); err != nil {
			t.Fatal(err)
		}
	}
	recv := func() *pb.BatchAck {
		t.Helper()
		ack, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	send(&pb.DiscoveredBatch{ID: "probe"})
	if ack := recv(); ack.GetID() != "probe" || len(ack.GetStatuses()) != 0 {
		t.Errorf("ack of an empty batch: %v", ack)
	}
	first := &pb.DiscoveredBatch{ID: "1"}
	var want []pb.AckMessage_Status
	for i := range 300 {
		url := fmt.Sprintf("https://site%d.example/%d", i%10, i)
		first.Items = append(first.Items, info(url, "", ""), info(url, "", "other"), info(url, "", ""), info("tel:"+url, "", ""))
		want = append(want, pb.AckMessage_OK, pb.AckMessage_OK, pb.AckMessage_SKIPPED, pb.AckMessage_SKIPPED)
	}
	send(first)
	ack := recv()
	if ack.GetID() != "1" || fmt.Sprint(ack.GetStatuses()) != fmt.Sprint(want) {
		t.Errorf("ack %q: %v, want %v", ack.GetID(), ack.GetStatuses(), want)
	}
	const n = 200
	for i := range n {
		send(&pb.DiscoveredBatch{ID: strconv.Itoa(i), Items: first.GetItems()[i : i+4]})
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]bool{}
	for {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		acked[ack.GetID()] = true
		for _, st := range ack.GetStatuses() {
			if st != pb.AckMessage_SKIPPED || len(ack.GetStatuses()) != 4 {
				t.Errorf("known URLs: %v", ack)
			}
		}
	}
	if len(acked) != n {
		t.Errorf("%d acks of %d", len(acked), n)
	}
}

// TestStreamsStopClients sends without reading what is acknowledged: at some point the client has
// to wait, so that nothing piles up at the server. Once it reads, everything is acknowledged.
func TestStreamsStopClients(t *testing.T) {
	t.Parallel()
	const n = 60_000
	p := newCluster(t, 1, nil).processes[0]
	stream, err := p.PutURLs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	failed := make(chan error, 1)
	go func() {
		long := strings.Repeat("long/", 200)
		for i := range n {
			if err := stream.Send(discovered("", info(fmt.Sprintf("https://site%d.example/%s%d", i%100, long, i), "", ""))); err != nil {
				failed <- err
				return
			}
			sent.Add(1)
		}
		failed <- stream.CloseSend()
	}()
	for last := int64(-1); last != sent.Load(); time.Sleep(500 * time.Millisecond) {
		last = sent.Load()
	}
	// 60,000 URLs are 60 MB, of which windows, the connection and the server hold some 20.
	if got := sent.Load(); got > n*3/4 {
		t.Errorf("%d of %d URLs were sent while nobody read the acks", got, n)
	}
	acks := 0
	for {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ack.GetStatus() != pb.AckMessage_OK {
			t.Errorf("%v", ack)
		}
		acks++
	}
	if err := <-failed; err != nil || acks != n {
		t.Errorf("%d acks of %d: %v", acks, n, err)
	}
}

// TestStopEndsStreams stops the server while a client has a stream open: the stream ends with a
// status that says to go on elsewhere or later, and what was acknowledged before is kept.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	p := c.processes[0]
	stream, err := p.PutURLs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(discovered("1", info("https://a.example/", "", ""))); err != nil {
		t.Fatal(err)
	}
	if ack, err := stream.Recv(); err != nil || ack.GetStatus() != pb.AckMessage_OK {
		t.Fatalf("%v, %v", ack, err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.halt()
	}()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
	<-stopped
	p.stop()
	c.processes = nil
	if st := c.start().put(t, discovered("1", info("https://a.example/", "", "")))["1"]; st != pb.AckMessage_SKIPPED {
		t.Errorf("put again: %v", st)
	}
}
