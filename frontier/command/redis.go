package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/cli"
)

const redisHelp = "`ADDR` of Redis 6.2 or later: host:port, or a URL redis://user:password@host:port/db, rediss:// with TLS; of a cluster some of its addresses, with commas between them"

// connect returns a client of --redis, and whether Redis is on this machine. Texts of errors do not
// have the address, which may have a password in it.
func connect(ctx context.Context, flag string) (client redis.UniversalClient, local bool, err error) {
	first, others, _ := strings.Cut(flag, ",")
	opt := &redis.Options{Addr: first}
	if strings.Contains(first, "://") {
		if opt, err = redis.ParseURL(first); err != nil {
			return nil, false, cli.Usagef("--redis: neither host:port nor a URL redis://, rediss:// or unix:// that Redis clients know")
		}
	} else if _, _, err := net.SplitHostPort(first); err != nil {
		return nil, false, cli.Usagef("--redis: neither host:port nor a URL of Redis")
	}
	addresses := []string{opt.Addr}
	if others != "" {
		addresses = append(addresses, strings.Split(others, ",")...)
	}
	for _, a := range addresses[1:] {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, false, cli.Usagef("--redis: what follows a comma is host:port; user, password and TLS are those of the first address")
		}
	}
	opt.MaxRetries = -1 // see coord.Open
	opt.Protocol = 2    // with 3 the client looks for messages before each answer, and none are sent
	cluster, err := isCluster(ctx, opt, addresses)
	switch {
	case err != nil:
		return nil, false, err
	case !cluster && len(addresses) > 1:
		return nil, false, cli.Usagef("--redis: several addresses are those of a cluster, and %s is none", opt.Addr)
	case !cluster:
		return redis.NewClient(opt), isLocal(opt.Addr), nil
	case opt.DB != 0:
		return nil, false, cli.Usagef("--redis: a cluster has no database %d", opt.DB)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addresses, Username: opt.Username, Password: opt.Password, TLSConfig: opt.TLSConfig,
		DialTimeout: opt.DialTimeout, ReadTimeout: opt.ReadTimeout, WriteTimeout: opt.WriteTimeout, PoolSize: opt.PoolSize,
		Protocol: opt.Protocol, MaxRetries: -1, MaxRedirects: -1, // coord sends again what is safe to
	}), slices.ContainsFunc(addresses, isLocal), nil
}

// isCluster asks the first server that answers.
func isCluster(ctx context.Context, opt *redis.Options, addresses []string) (bool, error) {
	var failed error
	for _, a := range addresses {
		one := *opt
		one.Addr = a
		client := redis.NewClient(&one)
		info, err := client.InfoMap(ctx, "cluster").Result()
		if err = errors.Join(err, client.Close()); err == nil {
			return info["Cluster"]["cluster_enabled"] == "1", nil
		}
		failed = errors.Join(failed, fmt.Errorf("redis: %s: %w", a, err))
	}
	return false, fmt.Errorf("no Redis that answers; start one, for example with redis-server --appendonly yes, or correct --redis: %w", failed)
}

func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkRedis looks at every server: see coord.Check.
func checkRedis(ctx context.Context, client redis.UniversalClient, local bool) (advice []string, fatal bool, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return coord.Check(ctx, client, local)
	}
	nodes := make(chan *redis.Client, 1000)
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		nodes <- node
		return nil
	})
	close(nodes)
	for node := range nodes {
		part, bad, failed := coord.Check(ctx, node, local)
		err = errors.Join(err, failed)
		fatal = fatal || bad
		for _, a := range part {
			if !slices.Contains(advice, a) {
				advice = append(advice, a)
			}
		}
	}
	return advice, fatal, err
}
