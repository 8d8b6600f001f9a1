#!/bin/busybox sh
# The first process of a guest. On the kernel's command line:
#   lab.guest=N  its number          lab.guests=N  how many there are
#   lab.mtu=N    of the link that carries RoCE
#   lab.agent=P  the program to run, octal escapes for unusual characters
export PATH=/bin HOME=/ TERM=dumb
/bin/busybox --install -s /bin
fail() { echo "lab: $*"; poweroff -f; }
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
guest=0 guests=1 mtu=9000 agent=
for word in $(cat /proc/cmdline); do case $word in
    lab.guest=*) guest=${word#*=};; lab.guests=*) guests=${word#*=};; lab.mtu=*) mtu=${word#*=};;
    lab.agent=*) agent=$(printf '%b' "${word#*=}");;
esac; done
while read -r module; do
    insmod "/modules/$module" || echo "lab: module $module cannot be loaded"
done < /modules/order

# The host's files below, those of the packages above them, memory above all.
share() { mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 "$1" "$2"; }
mkdir -p /lower/host /lower/tree /upper /root
share host /lower/host || fail "the host's files are not there"
share tree /lower/tree || fail "the packages are not there"
mount -t tmpfs -o mode=755 upper /upper; mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower/tree:/lower/host,upperdir=/upper/files,workdir=/upper/work \
    root /root || fail "the file systems cannot be joined"
for name in proc sys dev; do mkdir -p /root/$name; mount -o rbind /$name /root/$name; done
mkdir -p /root/dev/shm /root/dev/pts /root/run
mount -t tmpfs -o mode=1777 shm /root/dev/shm; mount -t devpts pts /root/dev/pts
mount -t tmpfs -o mode=755 run /root/run
ln -sf /proc/self/fd /root/dev/fd

hostname g$guest
echo g$guest > /root/etc/hostname
{
    echo "127.0.0.1 localhost"
    for i in 0 1 2 3; do echo "10.77.0.$((i + 1)) g$i"; echo "10.78.0.$((i + 1)) m$i"; done
} > /root/etc/hosts
: > /root/etc/resolv.conf

# roce0 carries RoCE and can be cut, control0 is there to steer by.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
in_root() { chroot /root "$@"; }
/bin/busybox ip link set lo up
for path in /sys/class/net/*; do
    case $(cat $path/address) in
        52:54:00:77:00:*) in_root ip link set ${path##*/} name roce0;;
        52:54:00:78:00:*) in_root ip link set ${path##*/} name control0;;
    esac
done
[ -e /sys/class/net/roce0 ] || in_root ip link set dummy0 name roce0
in_root ip link set roce0 mtu $mtu up || in_root ip link set roce0 up
in_root ip addr add 10.77.0.$((guest + 1))/24 dev roce0
if [ -e /sys/class/net/control0 ]; then
    in_root ip link set control0 up
    in_root ip addr add 10.78.0.$((guest + 1))/24 dev control0
fi
in_root rdma link add rxe0 type rxe netdev roce0 || fail "Soft-RoCE cannot be set up"

# The index of the address that RoCE v2 over IPv4 goes by is not always the same.
gid= tries=0
while [ -z "$gid" ] && [ $tries -lt 100 ]; do
    for path in /sys/class/infiniband/rxe0/ports/1/gids/*; do
        case $(cat $path 2>/dev/null) in *:ffff:0a4d:*) gid=${path##*/}; break;; esac
    done
    tries=$((tries + 1)); [ -n "$gid" ] || usleep 20000
done
export LAB_GUEST=$guest LAB_GUESTS=$guests LAB_DEVICE=rxe0 LAB_GID=$gid LAB_MTU=$mtu
ulimit -l unlimited
ulimit -c 0
HOME=/tmp in_root "$agent" agent || echo "lab: the agent ended with $?"
poweroff -f
