package coord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// eachNode calls do with the servers that have keys of a prefix: with that of its hash tag if it
// has a whole one, with all otherwise. Of a cluster these are the masters, at the same time.
func eachNode(ctx context.Context, client redis.UniversalClient, prefix string, do func(context.Context, *redis.Client) error) error {
	if single, ok := client.(*redis.Client); ok {
		return do(ctx, single)
	}
	cluster, ok := client.(*redis.ClusterClient)
	switch {
	case !ok:
		return fmt.Errorf("a client of Redis of the type %T", client)
	case strings.Contains(prefix, "}"):
		node, err := cluster.MasterForKey(ctx, prefix)
		if err != nil {
			return err
		}
		return do(ctx, node)
	default:
		return cluster.ForEachMaster(ctx, do)
	}
}

// incarnations identifies the running servers.
func incarnations(ctx context.Context, client redis.UniversalClient) (string, error) {
	var mu sync.Mutex
	var all []string
	err := eachNode(ctx, client, "", func(ctx context.Context, node *redis.Client) error {
		info, err := node.InfoMap(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, info["Server"]["run_id"])
		return err
	})
	slices.Sort(all)
	return strings.Join(all, " "), failed(err)
}

const (
	// redirects is how often a command is sent again that a node of a cluster has refused, because
	// another one has its slot, or because it does not know yet which has which, and redirectWait
	// how long before. A node that has just started takes two seconds, so openRedirects are more.
	redirects     = 20
	openRedirects = 100
	redirectWait  = 50 * time.Millisecond
)

// redirected calls do again while a cluster refuses the command without having done anything. The
// client does not do so by itself: it would also send again what may have been done.
func redirected(ctx context.Context, times int, do func() error) error {
	for n := 0; ; n++ {
		err := do()
		if n == times || err == nil || !refused(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(redirectWait):
		}
	}
}

func refused(err error) bool {
	return slices.ContainsFunc([]string{"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN "}, func(s string) bool { return strings.HasPrefix(err.Error(), s) })
}
