"""Build the GPU driver from the operator's settings: on real GPUs or a mock machine, with the host's resources."""

import drakit
from drakit import machines, vfio
from drakit.vfio import kernel
from drakit_gpu import cdi, driver, driver_root, port, settings, share_policy, vfio_form
from drakit_gpu.health import faults
from drakit_gpu.inventory import discovery
from drakit_gpu.mig import markers
from drakit_gpu.mock import mock_gpus
from drakit_gpu.sharing.mps import pod_daemons

_DAEMONS = "mps"
_MARKERS = "instances"


def assemble(
    options: settings.GpuSettings, *, name: str | None, machine: machines.Choice | None, intents: drakit.Intents
) -> driver.GpuDriver:
    """Return the driver; raises SettingsError for contradicting settings. Real GPUs are opened by the first call that needs them.

    A mock machine has a driver root of empty files, and no device nodes are created for it.
    """
    terms = share_policy.SharePolicy(memory=options.share_memory, number=options.shares, partitions=options.share_mig)
    whole_beside = options.whole_beside_partitions
    if machine is None:
        root = driver_root.DriverRoot(path=options.driver_root, on_host=options.driver_root_on_host, folders=options.library_folders)
        hardware: port.GpuPort = _real_gpus(options, root)
        bus: vfio.Bus = kernel.KernelBus(options.kernel_root, dev_root=options.dev_root)
    else:
        mocked = mock_gpus.MockGpus(machine)
        hardware, root, bus = mocked, mocked.driver_root(), mocked.bus
        whole_beside = mocked.whole_beside_partitions if whole_beside is None else whole_beside
    return driver.GpuDriver(
        hardware,
        name=name or driver.NAME,
        intents=intents,
        options=discovery.DiscoveryOptions(whole_beside_partitions=bool(whole_beside), terms=terms),
        health=faults.HealthPolicy(ignored=options.ignored_xids, evicts=options.evict) if options.health else None,
        resources=driver.HostResources(
            files=cdi.DriverFiles(root, use_toolkit=options.toolkit),
            dev_root=options.dev_root if machine is None else None,
            passing=vfio_form.VfioForm(hardware, bus, is_offered=options.vfio, iommufd=options.iommufd),
            made=markers.MarkerStore(folder=options.home / _MARKERS if options.home else None),
            daemons=pod_daemons.PodDaemons(
                pods=options.daemon_pods,
                home=options.home / _DAEMONS if options.home else None,
                root=root,
                # A mock machine's daemons serve no CUDA program, and need no privilege.
                own_shm=machine is None,
            ),
        ),
    )


def _real_gpus(options: settings.GpuSettings, root: driver_root.DriverRoot) -> port.GpuPort:
    try:
        from drakit_gpu import nvml  # noqa: PLC0415 - the binding is needed on nodes with real GPUs only
    except ImportError as error:
        fix = "install it (pip install 'drakit[gpu]'), or name a mock machine"
        raise drakit.SettingsError(f"real GPUs need the package nvidia-ml-py: {fix}", key="mock.machine") from error
    return nvml.NvmlGpus.open(options.library, root=root, kernel_root=options.kernel_root)
