// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * RDMA devices for tests, one on each interface that `interfaces` names: insmod drakit_rdma.ko interfaces=eth0,eth1
 *
 * They transfer nothing. Like those of hardware, they have a parent PCI function, outlive moves of their interface between network namespaces, and
 * can be moved themselves. Of the RDMA devices that an emulated machine has, rxe's have neither property.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/addrconf.h>
#include <rdma/ib_verbs.h>

#define MOST 8

static char *interfaces[MOST];
static int count;
module_param_array(interfaces, charp, &count, 0444);

struct test_device {
	struct ib_device ib;
};

struct test_context {
	struct ib_ucontext ib;
};

static struct test_device *devices[MOST];

static int query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	memset(attr, 0, sizeof(*attr));
	attr->sys_image_guid = ib->node_guid;
	return 0;
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->gid_tbl_len = 8;
	attr->pkey_tbl_len = 1;
	attr->max_mtu = attr->active_mtu = IB_MTU_1024;
	return 0;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static int query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	return 0;
}

static int port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 8;
	immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_PORT_RAW_PACKET;
	return 0;
}

static enum rdma_link_layer link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return 0;
}

static void dealloc_ucontext(struct ib_ucontext *context)
{
}

static void disassociate_ucontext(struct ib_ucontext *context)
{
}

static const struct ib_device_ops operations = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,
	.alloc_ucontext = alloc_ucontext,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate_ucontext,
	.get_link_layer = link_layer,
	.get_port_immutable = port_immutable,
	.query_device = query_device,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.query_port = query_port,
	INIT_RDMA_OBJ_SIZE(ib_ucontext, test_context, ib),
};

static int add(struct net_device *netdev, struct test_device **made)
{
	struct test_device *device = ib_alloc_device(test_device, ib);
	int failed;

	if (!device)
		return -ENOMEM;
	device->ib.node_type = RDMA_NODE_IB_CA;
	device->ib.phys_port_cnt = 1;
	device->ib.num_comp_vectors = 1;
	device->ib.dev.parent = netdev->dev.parent;
	addrconf_addr_eui48((u8 *)&device->ib.node_guid, netdev->dev_addr);
	ib_set_device_ops(&device->ib, &operations);
	failed = ib_device_set_netdev(&device->ib, netdev, 1);
	if (!failed)
		failed = ib_register_device(&device->ib, "test_%d", NULL);
	if (failed)
		ib_dealloc_device(&device->ib);
	else
		*made = device;
	return failed;
}

static void remove_all(void)
{
	int number;

	for (number = 0; number < MOST; number++) {
		if (!devices[number])
			continue;
		ib_unregister_device(&devices[number]->ib);
		ib_dealloc_device(&devices[number]->ib);
	}
}

static int __init start(void)
{
	int number;

	for (number = 0; number < count; number++) {
		struct net_device *netdev = dev_get_by_name(&init_net, interfaces[number]);
		int failed = netdev ? add(netdev, &devices[number]) : -ENODEV;

		if (netdev)
			dev_put(netdev);
		if (failed) {
			remove_all();
			return failed;
		}
	}
	return 0;
}

module_init(start);
module_exit(remove_all);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("RDMA devices for tests");
