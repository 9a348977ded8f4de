#SBATCH --job-name=training-warehouse
#SBATCH --nodes=~{nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=~{per_node}
#SBATCH --exclusive
